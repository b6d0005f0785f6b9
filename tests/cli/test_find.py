"""`toolpost tools --find`: what an agent would be sent, with scores, reasons and costs."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.cli.conftest import Run, Server

OFFICE = [
    part for name in ("calendar", "mail", "shop", "wiki") for part in ("--plugin", f"tests.plugins.office:{name}")
]


@pytest.fixture(autouse=True)
def _importable(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] += f":{root}"
    monkeypatch.syspath_prepend(root)


def test_tools_are_shown_best_first_with_the_reason(invoke: Run, tmp_path: Path) -> None:
    ended = invoke("tools", "--find", "create", "a", "calendar", "event", *OFFICE)
    lines = ended.out.splitlines()

    assert ended.code == 0
    assert lines[0].split() == ["SCORE", "NAME", "DESCRIPTION", "WHY"]
    assert lines[1].split()[:2] == ["1.00", "calendar__create_event"]
    assert "name: create event" in lines[1]
    assert "of 61 tools" in ended.err
    assert "saved)" in ended.err
    assert not (tmp_path / ".toolpost").exists()


def test_json_has_scores_reasons_and_tokens(invoke: Run) -> None:
    found = invoke("tools", "--find", "delete a wiki page", "--json", *OFFICE).json

    first = found["tools"][0]
    scores = [tool["score"] for tool in found["tools"]]
    assert first["name"] == "wiki__delete_page"
    assert {"field": "name", "words": ["delete", "page"]} in first["why"]
    assert scores == sorted(scores, reverse=True)
    assert found["totalAvailable"] == 61
    assert found["tokens"]["sent"] == sum(tool["tokens"] for tool in found["tools"])
    assert found["tokens"]["saved"] == found["tokens"]["listing"] - found["tokens"]["sent"] > 0


def test_the_names_that_follow_are_shown(invoke: Run) -> None:
    found = invoke("tools", "--find", "delete a wiki page", "--json", *OFFICE).json
    shown = invoke("tools", "--find", "delete a wiki page", *OFFICE).out.splitlines()[-1]

    assert 10 < len(found["more"]) <= 35
    assert not {tool["name"] for tool in found["tools"]} & set(found["more"])
    assert shown == f"then: {', '.join(found['more'][:10])} and {len(found['more']) - 10} more (--json)"


def test_a_weak_match_is_named_as_weak(invoke: Run) -> None:
    ended = invoke("tools", "--find", "zebra quantum spectroscopy", *OFFICE)

    assert ended.code == 0
    assert "no tool is a strong match" in ended.err
    assert "calendar, mail, shop, wiki" in ended.err


@pytest.mark.parametrize("words", [(), ("",), ("  ",)])
def test_an_empty_query_is_a_usage_error(invoke: Run, words: tuple[str, ...]) -> None:
    ended = invoke("tools", "--find", *words)

    assert ended.code == 2
    assert "error:" in ended.err


def test_bytes_that_are_no_text_find_something_all_the_same(run: Run) -> None:
    ended = run("tools", "--find", "calendar \udcff event", "--json", *OFFICE)

    assert ended.code == 0
    assert ended.json["tools"]


def test_serve_takes_a_mode_and_counts(serve: Callable[..., Server]) -> None:
    server = serve("--mode", "automatic")
    base = server.url.removesuffix("/mcp")
    with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:
        page, kind = answer.read().decode(), answer.headers["content-type"]

    assert server.end().code == 0
    assert kind.startswith("text/plain; version=0.0.4")
    assert "# TYPE toolpost_calls_total counter" in page
    assert "\ntoolpost_search_tokens_saved_total 0.0\n" in page


def test_metrics_are_for_those_who_may_call(start: Callable[..., object], environment: dict[str, str]) -> None:
    environment["TOOLPOST_TOKEN"] = "secret"
    process = start("serve", "--listen", "127.0.0.1:0", "--json")
    url = json.loads(process.stdout.readline())["url"].removesuffix("/mcp")  # type: ignore[attr-defined]
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(f"{url}/metrics", timeout=10)
    shown = urllib.request.Request(f"{url}/metrics", headers={"authorization": "Bearer secret"})
    with urllib.request.urlopen(shown, timeout=10) as answer:
        status = answer.status
    refused.value.close()

    assert refused.value.code == 401
    assert status == 200


def test_a_mode_that_there_is_not_is_refused(invoke: Run) -> None:
    ended = invoke("serve", "--mode", "some")

    assert ended.code == 2
    assert "automatic" in ended.err
