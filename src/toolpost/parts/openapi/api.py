"""One API: its document is read, and its plugin made."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio import CapacityLimiter, to_thread

from toolpost import Context, Plugin
from toolpost.base import event
from toolpost.contracts import BadConfiguration
from toolpost.credentials import CallerCredentials
from toolpost.parts.openapi.answers import INLINE_BYTES, read_answer
from toolpost.parts.openapi.client import ApiClient
from toolpost.parts.openapi.credentials import KeyPlaces
from toolpost.parts.openapi.document import load_document
from toolpost.parts.openapi.operations import read_schemes
from toolpost.parts.openapi.serialize import write_request
from toolpost.parts.openapi.settings import BUDGET_TOKENS, RESPONSE_LIMIT_BYTES, ApiSettings, resolve_api
from toolpost.parts.openapi.tools import RESULT_KEY, OperationTool, make_plugin, make_tools
from toolpost.settings import Config
from toolpost.upstreams import ServerSpec

_log = logging.getLogger("toolpost.apis")

MANY_PATHS: Final = 200
"""A larger document makes so many objects that a collection of garbage among them would hold the event loop."""

SHOWN_OMISSIONS: Final = 10
"""How many operations are logged that are left out: the author of a document decides how many there are."""


@dataclass(frozen=True, kw_only=True)
class OpenApi:
    """The plugin of an API, and its sources."""

    plugin: Plugin
    client: ApiClient
    spec: ServerSpec
    """How it is reached, and logged in to."""
    timeout_s: float
    digest: str
    """That of the document."""


async def open_api(
    config: Config,
    name: str,
    api: ApiSettings,
    credentials: CallerCredentials,
    *,
    known: str = "",
    accepts_copy: bool = False,
    note_many: Callable[[], None] = lambda: None,
) -> OpenApi | None:
    """Read the document of an API and make its plugin; raises `ToolpostError`. None if it is the document with digest `known`.

    `accepts_copy` is that of `load_document`; `note_many` is called before very many objects are made.
    """
    spec = resolve_api(config, name, api)
    assert spec.url is not None
    place = f"apis.{name}.document"
    document = await load_document(
        api.document, project=Path(config.project), place=place, network=spec.network, accepts_copy=accepts_copy
    )
    if document.digest == known:
        return None
    paths = document.raw.get("paths")
    if isinstance(paths, dict) and len(paths) > MANY_PATHS:
        note_many()
    schemes = read_schemes(document)
    if unknown := sorted(api.security.keys() - schemes.keys()):
        raise BadConfiguration(
            f"apis.{name}.security.{unknown[0]}: the document has no security scheme of this name.",
            hint=f"it has {', '.join(sorted(schemes)) or 'none'}; `headers` are sent whatever the document says",
        )
    places = KeyPlaces(spec, schemes)
    fixed = places.fixed_names
    make = partial(
        make_tools,
        document,
        name,
        allow=api.allow,
        deny=api.deny,
        has_results=api.results == "enforce",
        timeout_s=api.timeout_s,
        hidden=fixed,
    )
    made = await to_thread.run_sync(make, abandon_on_cancel=True)
    for omission in made.omitted[:SHOWN_OMISSIONS]:
        event(_log, logging.WARNING, "operation left out", api=name, operation=omission.shown, reason=omission.reason)
    if (more := len(made.omitted) - SHOWN_OMISSIONS) > 0:
        hint = "`toolpost doctor` names more of them"
        event(_log, logging.WARNING, "more operations left out", api=name, operations=more, hint=hint)
    if made.tokens > BUDGET_TOKENS:
        event(
            _log,
            logging.WARNING,
            "an API takes many tokens to list",
            api=name,
            tools=len(made.tools),
            tokens=made.tokens,
            hint=f'select operations with apis.{name}.allow and deny, set results = "off", or use discovery.mode',
        )
    timeout_s = api.timeout_s or config.limits.timeout_s
    client = ApiClient(spec, places, credentials, limit_bytes=RESPONSE_LIMIT_BYTES, timeout_s=timeout_s)
    reading = CapacityLimiter(1)

    async def invoke(tool: OperationTool, arguments: dict[str, Any], context: Context) -> Any:
        operation = tool.operation
        response = await client.send(operation, write_request(operation, arguments, fixed), context)
        missing = places.explain_missing(operation)
        read = partial(
            read_answer,
            operation,
            response,
            is_wrapped=tool.is_wrapped,
            is_checked=tool.terms.output_schema is not None,
            key=RESULT_KEY,
            missing=missing,
        )
        if len(response.body) <= INLINE_BYTES:
            return read()
        # One at a time: each takes the interpreter and several times the memory of the body.
        return await to_thread.run_sync(read, limiter=reading)

    info = document.raw.get("info")
    version = str(info.get("version") or "") if isinstance(info, dict) else ""
    description = api.description or document.title
    # In a thread: a document decides how many operations there are.
    plugin = await to_thread.run_sync(
        partial(make_plugin, name, made.tools, invoke, version=version, description=description)
    )
    return OpenApi(plugin=plugin, client=client, spec=spec, timeout_s=timeout_s, digest=document.digest)
