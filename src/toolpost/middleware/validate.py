"""Schema-validate: refuse arguments and results that break the contract."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.contract import Contract
from toolpost.contracts.digest import encode_sorted
from toolpost.contracts.errors import InvalidArguments, InvalidResult
from toolpost.contracts.issues import Issue, find_issues_quickly, issues_of_unencodable
from toolpost.contracts.schema import Schema
from toolpost.middleware.call import Call
from toolpost.upstreams.validation.pool import Validators

RESULT_LIMIT_BYTES: Final = 20_000
"""What an error shows of a result that breaks its schema."""

_ANY_TEXT: Final = {"type": "string"}


class Validation:
    """Validates on the event loop where that is provably quick, otherwise in a worker process that can be killed."""

    def __init__(self, validators: Validators) -> None:
        self._validators = validators

    def validate_arguments(self, call: Call) -> Awaitable[None] | None:
        """Raise `InvalidArguments`, or return an awaitable that does if the check cannot be made at once."""
        schema = call.tool.contract.arguments_schema
        call.encoded_arguments = None
        try:
            call.encoded_arguments = encoded = encode_sorted(call.arguments)
        except (RecursionError, TypeError, ValueError) as error:
            raise _invalid_arguments(call.tool.contract, issues_of_unencodable(error)) from error
        issues = find_issues_quickly(schema, call.arguments, len(encoded))
        if issues is None:
            return self._validate_in_worker(call, encoded)
        if issues:
            raise _invalid_arguments(call.tool.contract, issues)
        return None

    async def _validate_in_worker(self, call: Call, encoded: bytes) -> None:
        contract = call.tool.contract
        if issues := await self._validators.find_issues(
            contract.arguments_schema, encoded, provider=call.tool.provider
        ):
            raise _invalid_arguments(contract, issues)

    def check_result(
        self,
        call: Call,
        result: Json | msgspec.Raw,
        encoded: bytes | msgspec.Raw,
        *,
        content_of: Callable[[], Sequence[Json]] = tuple,
    ) -> Awaitable[None] | None:
        """Raise `InvalidResult`, or return an awaitable that does if the check cannot be made at once.

        The error has the tool's result in its details, so that it is not lost.
        """
        schema = call.tool.contract.result_schema
        is_text = isinstance(result, str) or (
            isinstance(result, msgspec.Raw) and bytes(memoryview(encoded)[:1]) == b'"'
        )
        if schema is None or (is_text and schema.raw == _ANY_TEXT):
            # A long text needs no worker process to be found a text.
            return None
        if isinstance(result, msgspec.Raw):  # too large to become objects here
            return self._check_in_worker(call, schema, result, encoded, content_of)
        issues = find_issues_quickly(schema, result, len(memoryview(encoded)))
        if issues is None:
            return self._check_in_worker(call, schema, result, encoded, content_of)
        if issues:
            raise _invalid_result(call.tool.contract, issues, result, content_of())
        return None

    async def _check_in_worker(
        self,
        call: Call,
        schema: Schema,
        result: Json | msgspec.Raw,
        encoded: bytes | msgspec.Raw,
        content_of: Callable[[], Sequence[Json]],
    ) -> None:
        if issues := await self._validators.find_issues(schema, bytes(encoded), provider=call.tool.provider):
            raise _invalid_result(call.tool.contract, issues, result, content_of())


def accepts_quickly(call: Call) -> bool:
    """Return True if arguments are valid and that is certain to be found quickly; False does not mean invalid."""
    schema = call.tool.contract.arguments_schema
    try:
        call.encoded_arguments = encoded = encode_sorted(call.arguments)
        return len(encoded) <= schema.inline_limit_bytes and schema.is_valid(call.arguments)
    except (RecursionError, TypeError, ValueError):
        return False


def _invalid_arguments(contract: Contract, issues: list[Issue]) -> InvalidArguments:
    # The schema goes back with the refusal, so that a model can repair its own call.
    return InvalidArguments(
        _describe("The arguments break the schema", contract, issues),
        hint="fix the issues and call again",
        issues=_issue_objects(issues),
        inputSchema=contract.arguments_schema.raw,
    )


def _invalid_result(contract: Contract, issues: list[Issue], result: object, content: Sequence[Json]) -> InvalidResult:
    encoded = msgspec.json.encode(result)
    if len(encoded) > RESULT_LIMIT_BYTES:
        result = encoded[:RESULT_LIMIT_BYTES].decode(errors="ignore") + "…"
    return InvalidResult(
        _describe("The result breaks the output schema", contract, issues),
        hint="this is an error of the tool, not of the call; its result is under details.result",
        issues=_issue_objects(issues),
        result=result,
        content=content,
    )


def _describe(what: str, contract: Contract, issues: list[Issue]) -> str:
    return f"{what} of `{contract.name}`: " + "; ".join(issue.message for issue in issues[:3])


def _issue_objects(issues: list[Issue]) -> list[JsonObject]:
    return [issue.as_object() for issue in issues]
