"""Counters of conversations."""

from toolpost.metrics import Counter, Metrics


class AgentMetrics:
    """Counters of turns and agent sessions, among the metrics of a gateway."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self.agent_turns = metrics.add(
            Counter(
                "toolpost_agent_turns_total",
                "Turns, by how they found a session: warm, opening or cold.",
                label="found",
            )
        )
        self.agent_openings = metrics.add(
            Counter("toolpost_agent_sessions_opened_total", "Sessions of agents that were opened.")
        )
        self.agent_opening_seconds = metrics.add(
            Counter("toolpost_agent_session_opening_seconds_total", "Time that opening sessions of agents took.")
        )
        self.agent_failures = metrics.add(
            Counter("toolpost_agent_sessions_failed_total", "Sessions of agents that could not be opened.")
        )
        self.agent_evictions = metrics.add(
            Counter("toolpost_agent_sessions_ended_total", "Sessions of agents that were ended, by why.", label="why")
        )

    @property
    def warm_ratio(self) -> float:
        """The share of turns that found a warm session, from 0 to 1; 0 without turns."""
        warm, opening, cold = (self.agent_turns.value(found) for found in ("warm", "opening", "cold"))
        return warm / (warm + opening + cold) if warm + opening + cold else 0.0
