"""Templates: the common part of spans of one kind, which is nearly all of each and is made once."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from toolpost.parts.telemetry.histograms import Series

K = TypeVar("K")


class Template(NamedTuple):
    """The common part of all spans of a kind, and the histogram of their durations."""

    constant: bytes
    series: Series


class Templates(dict[K, Template]):
    """Templates by kind, each made when it is first needed.

    At the limit all of them are forgotten: servers may rename their tools again and again.
    """

    def __init__(self, make: Callable[[K], Template], *, limit: int) -> None:
        super().__init__()
        self._make = make
        self._limit = limit

    def __missing__(self, kind: K) -> Template:
        if len(self) >= self._limit:
            self.clear()
        template = self[kind] = self._make(kind)
        return template
