"""A pytest plugin that runs each test with `@proves` once for each of its claims, with a gateway that ignores that argument.

`pytest -p tests.ignoring FILE` writes to the file that `REPORT` names, for each claim, whether a test has failed. An argument is
ignored as a careless tool would: an optional one is left out, and of a required one the first value counts for all calls. A claim
without an argument is about the tool itself, which then fails.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests import conftest
from toolpost.contracts.errors import ToolFailed
from toolpost.gateway import Gateway
from toolpost.middleware import Call

REPORT = "TOOLPOST_TEST_CLAIMS"

HANGS_AFTER_S = 30.0

_MISSING: Any = object()


class Ignored:
    """The argument that is ignored now."""

    def __init__(self) -> None:
        self.tool = self.argument = ""
        self.first: Any = _MISSING

    def begin(self, tool: str, argument: str) -> None:
        self.tool, self.argument, self.first = tool, argument, _MISSING

    def change(self, arguments: dict[str, Any], *, is_required: bool) -> dict[str, Any]:
        if self.argument not in arguments:
            return arguments
        if not is_required:
            return {name: value for name, value in arguments.items() if name != self.argument}
        if self.first is _MISSING:
            self.first = arguments[self.argument]
        return arguments | {self.argument: self.first}


IGNORED = Ignored()
FAILED: dict[str, bool] = {}

_admit = Gateway.admit


def _admit_without(gateway: Gateway, *, name: str, arguments: Any, **options: Any) -> Call:
    if name == IGNORED.tool and isinstance(arguments, dict):
        if not IGNORED.argument:
            raise ToolFailed("The tool is broken.")
        schema = _admit(gateway, name=name, arguments=arguments, **options).tool.contract.arguments_schema.raw
        is_required = isinstance(schema, dict) and IGNORED.argument in schema.get("required", [])
        arguments = IGNORED.change(arguments, is_required=is_required)
    return _admit(gateway, name=name, arguments=arguments, **options)


def pytest_configure() -> None:
    # A test may wait for what an ignored argument would have brought about.
    conftest.LONGEST_S = HANGS_AFTER_S
    Gateway.admit = _admit_without  # type: ignore[method-assign, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _claims_of(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    for tool, argument in _claims_of(item):
        key = f"{tool} {argument}".strip()
        if FAILED.get(key):
            continue  # by another test, or with another parameter
        IGNORED.begin(tool, argument)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        FAILED[key] = any(report.failed for report in reports)
    return True


def pytest_sessionfinish() -> None:
    Path(os.environ[REPORT]).write_text(json.dumps(FAILED), encoding="utf-8")


def _claims_of(item: pytest.Item) -> list[tuple[str, str]]:
    claims: list[tuple[str, str]] = getattr(getattr(item, "function", None), "claims", [])
    return claims
