"""Requests of clients that are no calls as SERVER spans: of other methods, or refused before they became calls."""

import time
from typing import Final, NamedTuple

from toolpost.parts import ClientRequest
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.client_attributes import NETWORK, CallerAttributes, read_id
from toolpost.parts.telemetry.histograms import Histograms
from toolpost.parts.telemetry.spans import (
    SERVER,
    Span,
    TextAttribute,
    read_ids,
    write_constant_part,
    write_message,
    write_state,
)
from toolpost.parts.telemetry.templates import Template, Templates

_TEMPLATES_LIMIT: Final = 20_000

_write_request_id: Final = TextAttribute(names.REQUEST_ID)
_write_uri: Final = TextAttribute(names.RESOURCE_URI)


class RequestKind(NamedTuple):
    """What the spans of requests have in common that share a template."""

    method: str
    prompt: str | None
    transport: str
    version: str | None
    status: int | None
    """The JSON-RPC code of an error."""
    exception: str | None
    """The class of any other exception."""


class RequestSpans:
    """Makes the spans of requests."""

    def __init__(self, histograms: Histograms, callers: CallerAttributes) -> None:
        self._histograms = histograms
        self._callers = callers
        self._templates = Templates(self._make_template, limit=_TEMPLATES_LIMIT)

    def make(
        self, request: ClientRequest, *, status: int | None, message: str | None, exception: str | None
    ) -> list[Span]:
        """Count a request that ends now, and return its span; nothing if its trace is not sampled."""
        ended = time.monotonic_ns()
        prompt = request.target if request.method == "prompts/get" else None
        template = self._templates[
            RequestKind(request.method, prompt, request.caller.transport, request.version, status, exception)
        ]
        template.series.observe((ended - request.began_ns) / 1e9)
        if request.traceparent[54] == "0":
            return []
        own = self._callers.write(request.caller) + _write_request_id(read_id(request.id))
        if request.target is not None and prompt is None:
            own += _write_uri(request.target.encode())
        parent = None
        if request.parent is not None:
            parent = bytes.fromhex(request.parent.span_id)
            if request.parent.state is not None:
                own += write_state(request.parent.state)
        if message is not None:
            own += write_message(message)
        trace, span = read_ids(request.traceparent)
        return [Span(trace, span, parent, request.began_ns, ended, template.constant, own)]

    def _make_template(self, kind: RequestKind) -> Template:
        error_type = str(kind.status) if kind.status is not None else kind.exception
        attributes = {
            names.METHOD: kind.method,
            names.PROMPT_NAME: kind.prompt,
            names.OPERATION: names.EXECUTE_TOOL if kind.method == "tools/call" else None,
            names.PROTOCOL_VERSION: kind.version,
            **NETWORK.get(kind.transport, {}),
            names.ERROR_TYPE: error_type,
            names.STATUS_CODE: str(kind.status) if kind.status is not None else None,
        }
        name = f"{kind.method} {kind.prompt}" if kind.prompt is not None else kind.method
        constant = write_constant_part(name, SERVER, attributes, is_error=error_type is not None)
        return Template(constant, self._histograms.find(names.SERVER_DURATION, attributes))
