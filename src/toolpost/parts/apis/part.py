"""APIs as a part: its section, a plugin for each API, its import and its checks."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from toolpost.base.events import event
from toolpost.contracts.errors import BadConfiguration, BadLock, LoginRequired
from toolpost.part_base import Part, PartDoctor
from toolpost.parts.apis.settings import APIS, ApiSettings, enabled_apis
from toolpost.registry import BUNDLED

if TYPE_CHECKING:
    from toolpost.authoring import Context, Plugin
    from toolpost.contracts.lockfile import LockedTools
    from toolpost.host import Host, Provided
    from toolpost.parts.apis.changes import OpenApi
    from toolpost.providers.plugin_host import PluginCandidate, PluginHost
    from toolpost.settings import Config
    from toolpost.upstreams.credentials.oauth import Authorizations

_log = logging.getLogger("toolpost.apis")


class ApisPart(Part):
    """APIs that an OpenAPI document describes. Without one in the configuration, nothing of it is loaded."""

    name = "apis"
    sections = (APIS,)
    importers = next(entry.importers for entry in BUNDLED if entry.name == "apis")

    def doctor(self) -> PartDoctor:
        """Look at the documents: what becomes a tool, what does not, and how much of a model's context all that takes."""
        from toolpost.parts.apis.doctor import ApisDoctor

        return ApisDoctor()

    @asynccontextmanager
    async def open(self, host: "Host") -> AsyncIterator["Provided"]:
        """Bring a plugin for each API. One whose document cannot be read is named as failed, and the others are served."""
        from toolpost.host import Provided

        apis = enabled_apis(host.config)
        if not apis or not host.loads_bundled:
            yield Provided()
            return
        check_names(host.config, apis)
        from anyio import create_task_group

        from toolpost.parts.apis.changes import DocumentFollower, HeldApis, OpenApi
        from toolpost.settings.credentials import key_place_of
        from toolpost.upstreams.credentials.oauth import Authorizations
        from toolpost.upstreams.credentials.vault import Vault

        async with AsyncExitStack() as stack:
            authorizations = Authorizations(Vault(host.store, key_place_of(host.config)))
            stack.push_async_callback(authorizations.aclose)
            plugins: dict[str, Plugin | PluginCandidate] = {}
            served: dict[str, OpenApi] = {}

            async def close_clients() -> None:
                for opened in served.values():
                    await opened.client.aclose()

            async def open_one(name: str, known: str) -> OpenApi | None:
                return await open_api(host.config, name, apis[name], authorizations, plugins=host.plugins, known=known)

            stack.push_async_callback(close_clients)
            held = HeldApis(apis.keys(), mode=host.config.contracts, locked=_read_lock(host.config.lock_path))
            follower = DocumentFollower(host, apis, open_one, served, held)

            async def load(name: str) -> None:
                try:
                    opened = await open_one(name, "")
                    assert opened is not None
                except Exception as error:  # noqa: BLE001 (a document may be anything, and must not take the others down)
                    plugins[name] = _make_failed(name, error)
                else:
                    plugins[name], served[name] = opened.plugin, opened

            @asynccontextmanager
            async def run(_gateway: object) -> AsyncIterator[None]:
                async with create_task_group() as tasks:
                    tasks.start_soon(follower.run)
                    yield
                    tasks.cancel_scope.cancel()

            # At once: each may wait for a document from the network.
            async with create_task_group() as tasks:
                for name in apis:
                    tasks.start_soon(load, name)
            yield Provided(
                plugins=[plugins[name] for name in apis],
                derive=held.derive,
                logins={name: opened.spec for name, opened in served.items() if opened.spec.auth is not None},
                run=None if host.is_brief else run,
            )


def check_names(config: "Config", apis: dict[str, ApiSettings]) -> None:
    """Raise `BadConfiguration` for an API with the name of a server: their tools and credentials would be mixed up."""
    for name in apis:
        if name in config.servers:
            raise BadConfiguration(f"apis.{name}: a server has this name already.", hint="rename one of them")


def _read_lock(path: Path) -> "LockedTools | None":
    """Read the lock; None if it cannot be read, which is reported where that of servers is."""
    from toolpost.settings.lock import read_lock

    try:
        return read_lock(path)
    except BadLock:
        return None


def _make_failed(name: str, error: Exception) -> "PluginCandidate":
    from toolpost.providers.plugin_host import PluginCandidate

    def fail() -> NoReturn:
        raise error

    return PluginCandidate(name=name, load=fail)


async def open_api(
    config: "Config",
    name: str,
    api: ApiSettings,
    authorizations: "Authorizations",
    *,
    plugins: "PluginHost",
    known: str = "",
) -> "OpenApi | None":
    """Read the document of an API and make its plugin; raises `ToolpostError`. None if it is the document with digest `known`.

    `plugins` know where people log in.
    """
    from functools import partial

    from anyio import to_thread

    from toolpost.base.caller import owner_of
    from toolpost.parts.apis.answers import read_answer
    from toolpost.parts.apis.changes import OpenApi
    from toolpost.parts.apis.client import ApiClient
    from toolpost.parts.apis.credentials import Credentials
    from toolpost.parts.apis.document import load_document
    from toolpost.parts.apis.operations import read_schemes
    from toolpost.parts.apis.serialize import write_request
    from toolpost.parts.apis.settings import resolve_api
    from toolpost.parts.apis.tools import RESULT_KEY, OperationTool, make_plugin, make_tools

    spec, keys = resolve_api(config, name, api)
    assert spec.url is not None
    place = f"apis.{name}.document"
    document = await load_document(api.document, project=Path(config.project), place=place, network=spec.network)
    if document.digest == known:
        return None
    schemes = read_schemes(document)
    if unknown := sorted(keys.keys() - schemes.keys()):
        raise BadConfiguration(
            f"apis.{name}.security.{unknown[0]}: the document has no security scheme of this name.",
            hint=f"it has {', '.join(sorted(schemes)) or 'none'}; `headers` are sent whatever the document says",
        )
    credentials = Credentials(spec, keys, schemes, authorizations.vault)
    fixed = credentials.fixed_names
    made = await to_thread.run_sync(
        partial(
            make_tools,
            document,
            name,
            allow=api.allow,
            deny=api.deny,
            has_results=api.results == "enforce",
            timeout_s=api.timeout_s,
            hidden=fixed,
        ),
        abandon_on_cancel=True,
    )
    for omission in made.omitted:
        event(_log, logging.WARNING, "operation left out", api=name, operation=omission.shown, reason=omission.reason)
    if 0 < api.budget_tokens < made.tokens:
        event(
            _log,
            logging.WARNING,
            "an API takes many tokens to list",
            api=name,
            tools=len(made.tools),
            tokens=made.tokens,
            hint=f'select operations with apis.{name}.allow and deny, set results = "off", or use discovery.mode',
        )
    client = ApiClient(spec.url, credentials, authorizations, limit_bytes=api.response_limit_bytes)

    async def invoke(tool: OperationTool, arguments: dict[str, Any], context: "Context") -> Any:
        operation = tool.operation
        request, owner = write_request(operation, arguments, fixed), owner_of(context.caller)
        try:
            response = await client.send(operation, request, owner)
        except LoginRequired as required:
            if plugins.logins is None:
                raise
            # It ends before the call's own deadline does: an error that says what to do is better than a timeout.
            limit_s = 0.95 * (api.timeout_s or config.limits.timeout_s)
            await plugins.logins.wait_for_login(required, spec, context.caller, context.client_channel, limit_s=limit_s)
            response = await client.send(operation, request, owner)
        missing = credentials.explain_missing(operation)
        return read_answer(operation, response, is_wrapped=tool.is_wrapped, key=RESULT_KEY, missing=missing)

    info = document.raw.get("info")
    version = str(info.get("version") or "") if isinstance(info, dict) else ""
    plugin = make_plugin(name, made.tools, invoke, version=version, description=api.description or document.title)
    return OpenApi(plugin=plugin, client=client, spec=spec, digest=document.digest)
