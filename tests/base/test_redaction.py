"""Secrets are told by name, in any spelling of names."""

import pytest

from toolpost.base.redaction import (
    DISTINCT_NAMES_LIMIT,
    NAME_LIMIT,
    REDACTED,
    is_secret_name,
    redact,
)


@pytest.mark.parametrize(
    "name",
    [
        "password", "passwd", "userPassword", "user_password", "secret", "client-secret", "token", "github_token",
        "api_key", "apiKey", "apikey", "X-Api-Key", "API_KEY", "authorization", "Authorization", "credential",
        "credentials", "private_key", "privateKey", "access_key", "AWS_SECRET_ACCESS_KEY", "cookie", "Set-Cookie",
        "session_token", "sessionToken", "accessToken", "refresh_tokens", "id_token",
    ],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens", "maxTokens", "token_count", "tokenizer", "page_token", "pageToken", "next_page_token",
        "nextPageToken", "cursor", "key", "primary_key", "public_key", "author", "secretary", "compass", "tokens",
        "password_policy", "secret_name", "", "日本",
    ],
)  # fmt: skip
def test_names_that_only_look_like_secrets_are_not(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_replaced_at_any_depth() -> None:
    value = {"user": "ada", "auth": {"x": 1}, "servers": [{"token": "t", "host": "h"}, 5]}

    assert redact(value) == {
        "user": "ada",
        "auth": "(redacted)",
        "servers": [{"token": "(redacted)", "host": "h"}, 5],
    }
    assert value["servers"] == [{"token": "t", "host": "h"}, 5]


@pytest.mark.parametrize("value", [{"a": [{"b": 1}], "max_tokens": 5}, [1, [2]], "token", None, {}])
def test_a_value_without_secrets_is_returned_itself(value: object) -> None:
    assert redact(value) is value


def test_parts_without_secrets_are_shared_and_order_is_kept() -> None:
    value = {"a": {"b": 1}, "password": "p", "z": 1}

    answer = redact(value)

    assert list(answer) == ["a", "password", "z"]
    assert answer["a"] is value["a"]


def test_a_name_that_is_too_long_to_be_read_is_taken_for_a_secret_one() -> None:
    assert not is_secret_name("a" * NAME_LIMIT)
    assert is_secret_name("a" * (NAME_LIMIT + 1))


def test_only_so_many_different_names_are_read() -> None:
    row = {f"n{number}": number for number in range(DISTINCT_NAMES_LIMIT)}

    assert redact([row, row]) == [row, row]
    assert redact([row, {"one_more": 1, "n0": 0}]) == [row, {"one_more": REDACTED, "n0": 0}]
