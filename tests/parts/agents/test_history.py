"""What a new session is given of the conversation."""

import pytest

from toolpost.base.ids import ThreadId
from toolpost.parts.agents import ThreadMessage, TurnId
from toolpost.parts.agents.history import HistoryLimits, _take_newest


def messages(*texts: str) -> list[ThreadMessage]:
    return [
        ThreadMessage(thread=ThreadId("t"), seq=seq, turn=TurnId(f"{seq}"), role="user", text=text, at_utc=0.0)
        for seq, text in enumerate(texts, start=1)
    ]


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        (HistoryLimits(messages=2, tokens=100), ["two", "three"]),
        (HistoryLimits(messages=9, tokens=1), ["…hree"]),
        (HistoryLimits(messages=0, tokens=100), []),
        (HistoryLimits(messages=9, tokens=0), []),
    ],
)
def test_the_newest_messages_that_fit_are_taken(limits: HistoryLimits, taken: list[str]) -> None:
    assert [message.text for message in _take_newest(messages("one", "two", "three"), limits)] == taken
