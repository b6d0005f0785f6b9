"""Counters since the start, in the text format of Prometheus."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


Gauges = Mapping[str, tuple[str, float]]
"""What holds at this moment: by name, what it means and its value."""


class Counter:
    """A number that only grows, or one per value of a label. Label values are a fixed set, never text of callers."""

    __slots__ = ("_values", "help", "label", "name")

    def __init__(self, name: str, help: str, *, label: str | None = None) -> None:  # noqa: A002 (as Prometheus calls it)
        self.name = name
        self.help = help
        self.label = label
        self._values: defaultdict[str, float] = defaultdict(float)
        if label is None:
            self._values[""] = 0

    def add(self, by: float = 1, *, of: str = "") -> None:
        self._values[of] += by

    def value(self, of: str = "") -> float:
        return self._values.get(of, 0)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} counter"
        for of, value in sorted(self._values.items()):
            label = f'{{{self.label}="{of}"}}' if self.label else ""
            yield f"{self.name}{label} {value:.15g}"


class Metrics:
    """Every counter of a gateway; docs/reference/metrics.md explains each."""

    def __init__(self) -> None:
        self.calls = Counter("toolpost_calls_total", "Calls answered, by their code; OK is a success.", label="code")
        self.call_seconds = Counter("toolpost_call_seconds_total", "Time from admission to answer, of all calls.")
        self.connections_refused = Counter(
            "toolpost_connections_refused_total", "Connections refused or closed for a limit, by which.", label="why"
        )
        self.searches = Counter(
            "toolpost_searches_total", "Answers of automatic_mcp, by how sure they are.", label="match"
        )
        self.tokens_sent = Counter("toolpost_search_tokens_sent_total", "Tokens of the answers of automatic_mcp.")
        self.tokens_saved = Counter(
            "toolpost_search_tokens_saved_total", "Tokens by which listing all tools would have cost more than that."
        )
        self.rerankings = Counter(
            "toolpost_rerankings_total", "Questions to the reranker, by what came of them.", label="outcome"
        )
        self.preparations = Counter("toolpost_index_preparations_total", "Times that the search index was prepared.")
        self.preparation_seconds = Counter("toolpost_index_preparation_seconds_total", "Time that preparing it took.")
        self._of_parts: list[Counter] = []

    def add(self, counter: Counter) -> Counter:
        """Show a counter of a part beside ours; returns it."""
        self._of_parts.append(counter)
        return counter

    @property
    def counters(self) -> list[Counter]:
        return [value for value in vars(self).values() if isinstance(value, Counter)] + self._of_parts

    def text(self, gauges: Gauges) -> str:
        """Render all counters, and gauges given as {name: (help, value)}."""
        lines = [line for counter in self.counters for line in counter.lines()]
        for name, (help_text, value) in gauges.items():
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {value:.15g}"]
        return "\n".join(lines) + "\n"
