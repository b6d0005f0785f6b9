"""Caches of an object's own methods."""

import gc
import weakref

from toolpost.base.method_caches import cache_method


class Squares:
    def __init__(self) -> None:
        self.computed: list[int] = []
        self.square = cache_method(self._square, 2)

    def _square(self, number: int) -> int:
        self.computed.append(number)
        return number * number


def test_the_last_results_are_remembered() -> None:
    squares = Squares()

    assert [squares.square(number) for number in (2, 2, 3, 2, 4, 3)] == [4, 4, 9, 4, 16, 9]
    assert squares.computed == [2, 3, 4, 3]


def test_the_object_is_freed_with_its_last_reference() -> None:
    squares = Squares()
    squares.square(2)
    held = weakref.ref(squares)
    gc.disable()
    try:
        del squares
        assert held() is None
    finally:
        gc.enable()
