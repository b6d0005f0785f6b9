"""Which methods are an extension's, and what is taken of what a side declares."""

import mcp_types.methods
import pytest

from toolpost.protocol.extensions import (
    BYTES_LIMIT,
    CORE_NOTIFICATIONS,
    CORE_REQUESTS,
    NAMES_LIMIT,
    TASKS,
    is_extension_notification,
    is_extension_request,
    match_extension,
    merge_extensions,
    select_extensions,
)


def test_what_the_sdk_knows_is_no_extension() -> None:
    sdk = mcp_types.methods
    requests = {method for method, _ in (*sdk.CLIENT_REQUESTS, *sdk.SERVER_REQUESTS)}
    notifications = {method for method, _ in (*sdk.CLIENT_NOTIFICATIONS, *sdk.SERVER_NOTIFICATIONS)}

    assert {method for method in requests if not method.startswith("tasks/")} == CORE_REQUESTS
    assert {method for method in notifications if "tasks" not in method} <= CORE_NOTIFICATIONS
    assert not any(map(is_extension_request, requests))
    assert not any(map(is_extension_notification, notifications))


@pytest.mark.parametrize(
    "method", ["skills/list", "com.example/do.it", "resources/directory/list", "plain", "a/b-c/d_e"]
)
def test_any_other_method_is_an_extension_s(method: str) -> None:
    assert is_extension_request(method)
    assert is_extension_notification(method)


@pytest.mark.parametrize(
    "method",
    *[
        [
            "tasks/get",
            "tasks/anything",
            "",
            "/a",
            "a//b",
            "a b",
            'a"b',
            "a\r\nb",
            "a\x00",
            "ä",
            "$/cancelRequest",
            "a" * 129,
        ]
    ],
)
def test_what_cannot_be_written_anywhere_is_not(method: str) -> None:
    assert not is_extension_request(method)
    assert not is_extension_notification(method)


def test_what_is_declared_is_kept_as_it_is() -> None:
    declared = {"a/b": {"deep": [{"er": None}]}, TASKS: {}, "odd": 1, "": {}, "x" * 300: {}}

    assert select_extensions({"extensions": declared, "experimental": {"e": {}}, "tools": {}}) == {
        "extensions": {"a/b": {"deep": [{"er": None}]}},
        "experimental": {"e": {}},
    }
    assert select_extensions({"extensions": {TASKS: {}}}) == {}
    assert select_extensions(None) == select_extensions([]) == select_extensions({"extensions": []}) == {}


def test_too_much_is_left_out_whole() -> None:
    many: dict[str, object] = {f"a/{number}": {} for number in range(5_000)}
    huge = {"a/huge": {"x": "y" * BYTES_LIMIT}, "a/small": {}}

    assert [*select_extensions({"extensions": many})["extensions"]] == [f"a/{number}" for number in range(NAMES_LIMIT)]
    assert select_extensions({"extensions": huge}) == {"extensions": {"a/small": {}}}


def test_settings_of_two_servers_are_merged_and_the_first_wins() -> None:
    first = {"extensions": {"a/b": {"types": ["x"], "on": False, "level": 1, "sub": {"k": "1"}}}}
    second = {"extensions": {"a/b": {"types": ["x", "y"], "on": True, "level": 2, "sub": {"l": "2"}}, "c/d": {}}}

    assert merge_extensions([first, second]) == {
        "extensions": {"a/b": {"types": ["x", "y"], "on": True, "level": 1, "sub": {"k": "1", "l": "2"}}, "c/d": {}}
    }
    assert first["extensions"]["a/b"]["types"] == ["x"]
    assert merge_extensions([]) == {}


def test_all_servers_together_are_bounded_too() -> None:
    declared = [{"extensions": {f"a/{number}": {"x": "y" * 10_000}}} for number in range(100)]

    assert len(merge_extensions(declared)["extensions"]) == 6


@pytest.mark.parametrize(
    ("method", "rank"),
    [
        ("com.example/skills", 3),
        ("com.example/skills/list", 3),
        ("notifications/com.example/skills/changed", 3),
        ("skills/list", 2),
        ("notifications/skills/changed", 2),
        ("com.example/other", 1),
        ("old/thing", 3),
        ("unrelated/list", 0),
    ],
)
def test_a_method_is_compared_with_the_names_of_extensions(method: str, rank: int) -> None:
    assert match_extension(method, {"extensions": {"com.example/skills": {}}, "experimental": {"old": {}}}) == rank
