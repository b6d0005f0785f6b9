"""Runs users' middleware around a call, and checks the results that it makes against the tool's contract.

It runs inside the audit and the deadline, and outside the lock, the validation and the tool: what it refuses, or hangs on, is
recorded, and the arguments that it hands on are validated like those of a client. Without any middleware this step is not in
the chain.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from toolpost.authoring.middleware import Applies, CallRequest, CallResult, NamedMiddleware, Next
from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.errors import GatewayError, InvalidArguments, InvalidResult, ToolFailed, ToolpostError
from toolpost.middleware.audit import outcome_of
from toolpost.middleware.call import Call
from toolpost.middleware.custom_result import read_data
from toolpost.middleware.dispatch import is_being_cancelled
from toolpost.middleware.interface import CheckedResult, NextStep
from toolpost.middleware.validate import Validation
from toolpost.protocol.shape import BadShape, decode
from toolpost.providers.functions import to_raw_result
from toolpost.providers.input_required import is_input_required
from toolpost.providers.tool import RawResult

_encode = msgspec.json.Encoder().encode
_ERRORS: Final = (TypeError, ValueError, RecursionError)


class UserMiddleware:
    """All middleware of one gateway, the outermost first."""

    def __init__(self, middleware: Sequence[NamedMiddleware], validation: Validation) -> None:
        self._middleware = tuple(middleware)
        self._validation = validation

    async def __call__(self, call: Call, proceed: NextStep) -> CheckedResult:
        """Run them around a call; an exception that is no `ToolpostError` becomes a `GatewayError`."""
        applying = [middleware for middleware in self._middleware if applies_to(middleware, call)]
        if not applying:
            return await proceed(call)
        run = _MiddlewareRun(call, proceed)
        chain: Next = run.proceed
        for middleware in reversed(applying):
            chain = partial(run.enter, middleware, proceed=chain)
        contract = call.tool.contract
        request = CallRequest(
            id=call.id,
            trace_id=call.trace_id,
            caller=call.caller,
            tool=contract.name,
            provider=call.tool.provider,
            arguments=call.arguments,
            via=call.via,
            annotations=contract.annotations,
            meta=call.context.meta,
            outcome_of=partial(outcome_of, call),
        )
        result = await chain(request)
        for checked in run.checked_results:
            if result.origin is checked and not result.replaced:
                return checked
        return await self._make_checked_result(call, result, run)

    async def _make_checked_result(self, call: Call, result: CallResult, run: "_MiddlewareRun") -> CheckedResult:
        """Check a result that did not come from the tool unchanged; raise `InvalidResult` if it breaks the
        schema.
        """
        try:
            returned = to_raw_result(result.data, result.content)
            encoded = _encode(returned.value)
        except (ToolFailed, *_ERRORS) as error:
            raise GatewayError(f"A middleware's result for `{call.tool.contract.name}` is not JSON: {error}") from error
        if not call.tool.contract.is_upstream and not _keeps_own_data(result):
            if result.is_error:
                raise ToolFailed(_text_of(returned.value))
            await self._check(call, returned, encoded)
            facts = run.checked_results[-1].facts if run.checked_results else None
            return CheckedResult(encoded, returned.content, facts=facts)
        if not result.is_error and call.tool.contract.is_upstream:
            await self._check(call, returned, encoded)
        fields = _fields_of(call, result, returned.value, returned.content)
        return CheckedResult(_encode(fields), upstream_fields=fields, is_error=result.is_error)

    async def _check(self, call: Call, returned: RawResult, encoded: bytes) -> None:
        checking = self._validation.check_result(call, returned.value, encoded, content_of=lambda: returned.content)
        if checking is not None:
            await checking


def applies_to(middleware: NamedMiddleware, call: Call) -> bool:
    """Whether a call is to pass a middleware."""
    applies: Applies | None = getattr(middleware.function, "applies_to_call", None)
    return applies is None or applies(call.caller, call.tool.contract.name, call.context.meta)


class _MiddlewareRun:
    """The passage of one call through the middleware."""

    def __init__(self, call: Call, proceed: NextStep) -> None:
        self._call = call
        self._proceed = proceed
        self.checked_results: list[CheckedResult] = []
        """The results of the tool, one for each time that a middleware called `proceed`."""
        self._running = 0
        """How many `proceed` have not ended."""

    async def enter(self, middleware: NamedMiddleware, request: CallRequest, proceed: Next) -> CallResult:
        """Run one middleware; errors of its own are raised with its name."""
        call = self._call
        call.running_middleware = middleware.name
        try:
            result = await middleware.function(request, proceed)
        except ToolpostError:
            raise
        except asyncio.CancelledError as error:
            if call.scope.cancel_called or is_being_cancelled():
                raise
            raise _error_of(middleware, error) from error
        except (Exception, SystemExit) as error:
            raise _error_of(middleware, error) from error
        if not isinstance(result, CallResult):
            raise GatewayError(f"The middleware `{middleware.name}` returned {type(result).__name__}, not a CallResult")
        return result

    async def proceed(self, request: CallRequest) -> CallResult:
        """Run the tool with the arguments of this request."""
        call = self._call
        try:
            # Convert dates and the like first: what is validated must be what is sent.
            arguments = msgspec.to_builtins(request.arguments, str_keys=True)
        except _ERRORS as error:
            raise InvalidArguments(
                f"A middleware changed the arguments to something that is not JSON: {error}"
            ) from error
        # All attempts share one call: other arguments, set now, would reach a tool that was checked with the first ones.
        if self._running and arguments != call.arguments:
            raise GatewayError("A middleware called `proceed` with other arguments before the first call had ended")
        if not self._running:
            call.arguments = arguments
        previous, call.running_middleware = call.running_middleware, None
        self._running += 1
        try:
            checked = await self._proceed(call)
        finally:
            self._running -= 1
            call.running_middleware = previous
        self.checked_results.append(checked)
        return CallResult.of(
            checked,
            partial(_decode_checked_result, call, checked),
            is_error=checked.is_error,
            needs_input=checked.upstream_fields is not None and is_input_required(checked.upstream_fields),
        )


def _error_of(middleware: NamedMiddleware, error: BaseException) -> GatewayError:
    return GatewayError(f"The middleware `{middleware.name}` raised {type(error).__name__}: {error}", cause=error)


def _decode_checked_result(call: Call, checked: CheckedResult) -> tuple[Json, Sequence[JsonObject]]:
    try:
        fields = checked.upstream_fields
        if fields is None:
            return msgspec.json.decode(checked.encoded), checked.content
        data, content = (
            decode(bytes(fields[key])) if key in fields else None for key in ("structuredContent", "content")
        )
        if not call.tool.contract.is_upstream:
            data = msgspec.json.decode(read_data(checked, call.tool.contract.terms.style))
    except (BadShape, msgspec.DecodeError) as error:
        name = call.tool.contract.name
        raise InvalidResult(f"The result of `{name}` cannot be shown to a middleware: it {error}") from error
    return data, content if isinstance(content, list) else []


def _keeps_own_data(result: CallResult) -> bool:
    """Whether this is a result that a function made itself, of which a middleware replaced no more than the content."""
    origin = result.origin
    return isinstance(origin, CheckedResult) and origin.upstream_fields is not None and "data" not in result.replaced


def _fields_of(call: Call, result: CallResult, data: Json, content: Sequence[JsonObject]) -> dict[str, msgspec.Raw]:
    """Build the result of an upstream's tool: what a middleware replaced, and the rest as the server sent it."""
    origin = result.origin
    fields = (
        dict(origin.upstream_fields) if isinstance(origin, CheckedResult) and origin.upstream_fields is not None else {}
    )
    if "data" in result.replaced:
        fields.pop("structuredContent", None)
        if isinstance(data, dict) or (data is not None and call.tool.contract.result_schema is not None):
            fields["structuredContent"] = msgspec.Raw(_encode(data))
        if "content" not in result.replaced or not content:
            content = [{"type": "text", "text": _text_of(data)}]
    fields["content"] = msgspec.Raw(_encode(list(content)))
    if result.is_error:
        fields["isError"] = msgspec.Raw(b"true")
    return fields


def _text_of(data: Json) -> str:
    return data if isinstance(data, str) else _encode(data).decode()
