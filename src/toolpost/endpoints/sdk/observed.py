"""Requests that the SDK answers, for an observer: as middleware of the SDK's server."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from toolpost.base.trace_context import continue_from_headers, read_trace_context
from toolpost.endpoints.calls import ClientRequest, RequestObserver
from toolpost.endpoints.sdk.request_context import VIEWER
from toolpost.protocol.rpc import encode


class ObservedRequests:
    """Calls an observer for each request; servers see its span as parent."""

    def __init__(self, observer: RequestObserver) -> None:
        self._observer = observer

    async def __call__(self, context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Answer a request by `call_next(context)`."""
        # Here, because it takes a second to load, and the SDK is loaded at its first use.
        from mcp.shared.exceptions import MCPError

        if context.request_id is None:
            return await call_next(context)  # a notification
        meta = dict(context.meta or {})
        if (headers := getattr(context.request, "headers", None)) is not None:
            meta = continue_from_headers(meta, dict(headers.raw))
        params = context.params or {}
        target = params.get("name") if context.method == "prompts/get" else params.get("uri")
        request = ClientRequest(
            method=context.method,
            target=target if isinstance(target, str) else None,
            id=encode(context.request_id),
            caller=VIEWER.get().caller,
            version=context.protocol_version,
            parent=read_trace_context(meta),
        )
        meta["traceparent"] = request.traceparent = self._observer.begin_request(request)
        try:
            answer = await call_next(replace(context, meta=meta))
        except MCPError as error:
            self._observer.end_request(request, status=error.error.code, message=error.error.message)
            raise
        except BaseException as error:
            self._observer.end_request(request, exception=type(error).__qualname__)
            raise
        self._observer.end_request(request)
        return answer
