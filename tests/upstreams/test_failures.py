"""The line of a failed server's stderr that is shown names the cause."""

import pytest

from toolpost.upstreams.failures import choose_telling_line

NPM_404 = [
    "npm error code E404",
    "npm error 404 Not Found - GET https://registry.example/@no%2fsuch",
    "npm error 404",
    "npm error 404  The requested resource '@no/such@*' could not be found",
    "npm error A complete log of this run can be found in: /root/.npm/_logs/debug-0.log",
]
CRASH = [
    "/srv/index.js:3",
    "Error: Cannot find module 'left'",
    "    at load (node:internal:1:2)",
    "",
    "Node.js v22.1.0",
]
DOCKER = [
    "Unable to find image 'nope:latest' locally",
    "docker: Error response from daemon: pull access denied for nope",
    "",
    "Run 'docker run --help' for more information",
]
PYDANTIC = [
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings",
    "api_key",
    "  Field required [type=missing, input_value={}, input_type=dict]",
    "    For further information visit https://errors.pydantic.dev/2.11/v/missing",
]


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (NPM_404, NPM_404[1]),
        ([line.replace("error", "ERR!", 1) for line in NPM_404], NPM_404[1].replace("error", "ERR!", 1)),
        (CRASH, CRASH[1]),
        (["Traceback (most recent call last):", "ValueError: no key"], "ValueError: no key"),
        (["Node.js v22.1.0"], "Node.js v22.1.0"),
        (["npm error code E404"], "npm error code E404"),
        (DOCKER, DOCKER[1]),
        ([*DOCKER[:-1], "See 'docker run --help'."], DOCKER[1]),
        (PYDANTIC, PYDANTIC[2].strip()),
    ],
)
def test_the_cause_is_shown_and_not_the_last_line(lines: list[str], cause: str) -> None:
    assert choose_telling_line(lines) == cause
