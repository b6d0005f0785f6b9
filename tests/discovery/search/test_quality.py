"""How often the right tool is found: on queries written here, and on those of public sets that no weight was chosen on."""

import json
from hashlib import md5
from statistics import mean
from typing import Any

import pytest

from tests.collected import SHARED
from toolpost.discovery.search import SearchIndex, ToolDocument

SETS = SHARED / "search"

LEAST = {
    "bfcl": (0.84, 0.90),
    "mcpzero_hand": (0.74, 0.82),
    "metatool_single": (0.82, 0.90),
    "stabletoolbench": (0.70, 0.79),
}
"""Recall at 5 and at 10 that each set must reach: a little under what is measured, for only some are asked here."""

SOME = 160


WRITTEN = {
    "mail__send_message": ("Send an e-mail to one or several people.", "write to Bob that the meeting is off"),
    "mail__search_messages": ("Search the mailbox by sender, subject or text.", "find the e-mail about the invoice"),
    "mail__delete_message": ("Move an e-mail to the trash.", "throw this e-mail away"),
    "calendar__create_event": ("Create an event in the calendar and invite people.", "schedule a meeting for Friday"),
    "calendar__list_events": ("List the events between two dates.", "which events do I have next week"),
    "files__read_file": ("Read the content of a file.", "show me what is in the config file"),
    "files__write_file": ("Write text to a file, replacing what was there.", "save this text to a file"),
    "files__move_file": ("Move or rename a file.", "rename report.txt to final.txt"),
    "web__search": ("Search the web and return the best pages.", "look up on the internet who won"),
    "web__fetch_page": ("Fetch a web page by its URL, as Markdown.", "get the text of this web page"),
    "git__commit": ("Record changes to the repository with a message.", "commit my changes"),
    "git__log": ("Show the history of commits.", "who changed this last: commit history"),
    "issues__create_issue": ("Create an issue in the tracker.", "report a bug in the issue tracker"),
    "issues__add_comment": ("Add a comment to an issue.", "comment on issue 42"),
    "weather__forecast": ("Get the weather forecast for a place.", "will it rain in Paris: weather tomorrow"),
    "maps__route": ("Find a route between two places.", "the route from Berlin to Hamburg"),
    "money__convert_currency": ("Convert an amount from one currency to another.", "100 dollars in euros, convert"),
    "text__translate": ("Translate a text into another language.", "translate this to French"),
    "text__summarize": ("Summarize a long text.", "give me a summary of the article: summarize it"),
    "image__resize": ("Resize an image to a width and a height.", "make this image smaller, resize to 200 pixels"),
    "db__run_query": ("Run an SQL query on the database.", "run select count from the users table in SQL"),
    "music__play_song": ("Play a song by its title or artist.", "play a song by the Beatles"),
    "notes__add_note": ("Add a note to the notebook.", "note down that the roses need water"),
    "timer__start": ("Start a timer for some minutes.", "set a timer for ten minutes"),
}
"""Tools, what they say of themselves, and what somebody asks for who needs them."""


def test_the_right_tool_of_ours_is_among_the_first() -> None:
    index = SearchIndex.prepare(
        ToolDocument(
            name=name,
            server=name.partition("__")[0],
            description=description,
            input_schema={"type": "object"},
            server_description="",
        )
        for name, (description, _) in WRITTEN.items()
    )
    tops = {name: [hit.name for hit in index.rank(query, limit=5).hits] for name, (_, query) in WRITTEN.items()}

    first = [name for name, top in tops.items() if top[:1] == [name]]
    assert [name for name, top in tops.items() if name not in top] == []
    assert len(first) / len(tops) >= 0.8


@pytest.mark.outside(SETS)
def test_the_right_tool_is_among_the_first() -> None:
    found = {name: _recall(name) for name in LEAST}

    for name, (at_5, at_10) in found.items():
        assert at_5 >= LEAST[name][0], (name, found)
        assert at_10 >= LEAST[name][1], (name, found)
    # The table was trained on MetaTool's queries: it counts in no mean.
    unseen = [recalls for name, recalls in found.items() if name != "metatool_single"]
    assert mean(at_5 for at_5, _ in unseen) >= 0.79
    assert mean(at_10 for _, at_10 in unseen) >= 0.86


def _recall(name: str) -> tuple[float, float]:
    index = SearchIndex.prepare(
        ToolDocument(
            name=tool["id"],
            server=tool["server"],
            description=tool["description"],
            input_schema=tool["inputSchema"],
            server_description=tool.get("serverDescription") or "",
        )
        for tool in _lines(name, "tools")
    )
    asked = sorted(_lines(name, "queries"), key=lambda query: md5(query["query"].encode()).digest())
    # The half with an odd first byte is the one to report on; see bench/search.
    queries = [query for query in asked if md5(query["query"].encode()).digest()[0] % 2][:SOME]
    tops = [[hit.name for hit in index.rank(query["query"], limit=10).hits] for query in queries]
    return tuple(  # type: ignore[return-value]
        mean(
            len({*query["gold"]} & {*top[:depth]}) / len(query["gold"])
            for query, top in zip(queries, tops, strict=True)
        )
        for depth in (5, 10)
    )


def _lines(name: str, part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SETS / name / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()]
