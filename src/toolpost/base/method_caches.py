"""Caches of an object's own methods, which do not keep the object alive.

`self._made = lru_cache(self._make)` is a cycle: the object, and all that it has, would wait for a collection of garbage. One with
thousands of tools may wait for long, and for good if it was frozen (`toolpost.cli.serve.run_collections`).
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakMethod

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Result = TypeVar("Result")


def cache_method(method: Callable[..., Result], size: int) -> "_lru_cache_wrapper[Result]":
    """Return the bound method with a cache of its last results, to be kept by its object."""
    weak = WeakMethod(method)

    @lru_cache(maxsize=size)
    def call(*arguments: Hashable) -> Result:
        bound = weak()
        assert bound is not None, "who calls it has the object"
        return bound(*arguments)

    return call
