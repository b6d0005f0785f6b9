"""The administrator's HTTP API for the servers behind the gateway, which `toolpost servers` uses.

GET  /api/servers               the state of every server
GET  /api/servers/NAME          the state of one
POST /api/servers/NAME/ACTION   `start`, `stop` or `restart` it; answers with its state afterwards

Only for administrators: the holder of the single token, or a caller with `admin = true`. Errors are the error object of the
wire, under `error`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import msgspec
from anyio import to_thread

from toolpost.base.events import event
from toolpost.base.ids import Json, JsonObject
from toolpost.base.nearest import nearest_name
from toolpost.contracts.compatibility.definition import name_instructions
from toolpost.contracts.errors import (
    ContractRefused,
    ErrorCode,
    Forbidden,
    NotFound,
    QueueOverloaded,
    ToolpostError,
    UpstreamUnavailable,
)
from toolpost.contracts.findings import Finding
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.auth.roster import Admission
from toolpost.endpoints.http.descriptors import is_out_of_descriptors
from toolpost.endpoints.http.exchange import PRIVATE_HEADERS, send_json
from toolpost.endpoints.http.paths import SERVERS_PATH
from toolpost.endpoints.http.refusal import Refused, forbidden
from toolpost.endpoints.http.request import HttpRequest
from toolpost.protocol.rpc import encode, internal_error
from toolpost.providers.findings import Findings, FindingsScanner
from toolpost.providers.server_provider import ServerProvider
from toolpost.upstreams.spec import ServerSpec

_log = logging.getLogger("toolpost.endpoints")

READY_S: Final = 45.0
"""How long an answer waits for a server that starts; after that its state is `starting`."""

ACTIONS: Final = ("restart", "start", "stop")

Conceal = Callable[[ServerSpec], Callable[[str], str]]
"""Makes a function that removes a server's secrets from a text: a server may repeat them in its output."""

ServerTable = Callable[[], Mapping[str, ServerProvider]]

_STATUS: Final[Mapping[type[ToolpostError], int]] = {
    Forbidden: 403,
    NotFound: 404,
    QueueOverloaded: 503,
    UpstreamUnavailable: 503,
}


class Admin:
    """The administrator's paths."""

    def __init__(
        self,
        access: Access,
        servers: ServerTable,
        watch: FindingsScanner,
        conceal: Conceal,
        check_browser_write: Callable[[HttpRequest, Admission], None],
    ) -> None:
        self._access = access
        self._check_change = check_browser_write
        self._servers = servers
        self._watch = watch
        self._conceal = conceal

    def serves(self, path: str) -> bool:
        return path == SERVERS_PATH or path.startswith(f"{SERVERS_PATH}/")

    async def answer(self, request: HttpRequest) -> None:
        """Answer a request; failures are sent as the error object."""
        try:
            admission = await self._access.admit(request)
            if not admission.is_admin:
                raise forbidden("Only a caller with `admin = true` may manage servers")
            if request.method != "GET":
                self._check_change(request, admission)
            body = await self._result(request, admission.caller.id)
        except Refused as refusal:
            error = {"code": refusal.code.value, "message": str(refusal)}
            await _send_error(request, error, refusal.status, refusal.headers)
        except ToolpostError as failure:
            await _send_error(request, failure.as_object(), _STATUS.get(type(failure), 500))
        except Exception as bug:
            # A bug in the gateway gets an answer too.
            if is_out_of_descriptors(bug):
                raise
            message = internal_error(bug).message
            await _send_error(request, {"code": ErrorCode.INTERNAL.value, "message": message}, 500)
        else:
            await send_json(request.send, encode(body), headers=PRIVATE_HEADERS)

    async def _result(self, request: HttpRequest, caller: str) -> Json:
        name, _, action = request.path.removeprefix(SERVERS_PATH).removeprefix("/").partition("/")
        if not name:
            _check_method(request, "GET")
            # One by one: each looks at every process of a server, and calls in flight get their turn in between.
            return {"servers": [await self._report(provider) for provider in self._servers().values()]}
        provider = find_server(name, self._servers())
        if not action:
            _check_method(request, "GET")
            return await self._report(provider)
        check_action(action)
        _check_method(request, "POST")
        _check_not_a_form(request)
        await act_on_server(provider, action, caller, self._conceal(provider.spec))
        return await self._report(provider)

    async def _report(self, provider: ServerProvider) -> JsonObject:
        return await report_server(provider, self._watch, self._conceal(provider.spec))


async def report_server(
    provider: ServerProvider, watch: FindingsScanner, conceal: Callable[[str], str]
) -> dict[str, Any]:
    """Describe a server and its tools that are not as they should be, as JSON; `conceal` removes its secrets."""
    report = provider.report()
    return {
        "name": report.name,
        "state": report.state.value,
        "transport": report.transport,
        "version": report.version,
        "pids": list(report.pids),
        "memoryBytes": report.memory_bytes,
        "inFlight": report.in_flight,
        "restarts": report.restarts,
        "lastError": conceal(report.last_error) if report.last_error is not None else None,
        "lastErrorAt": report.last_error_at and _format_time(report.last_error_at),
        "stderrTail": [conceal(line) for line in report.stderr_tail],
        "oddities": report.oddities,
        "degraded": report.degraded,
        "tags": sorted(provider.spec.tags),
        "tools": len(provider.tools),
        # In a thread: a server decides how many tools there are to tell of.
        **await to_thread.run_sync(_report_tools, provider, watch.of(provider.name), conceal),
    }


async def act_on_server(provider: ServerProvider, action: str, caller: str, conceal: Callable[[str], str]) -> None:
    """Start, stop or restart a server, and wait until it is ready; raises `UpstreamUnavailable`, without secrets, if it fails."""
    event(_log, logging.INFO, "server action", server=provider.name, action=action, caller=caller)
    try:
        await _act(provider, action)
    except UpstreamUnavailable as error:
        raise _conceal_error(error, conceal) from error


def _report_tools(
    provider: ServerProvider, of_tools: Findings, conceal: Callable[[str], str]
) -> dict[str, msgspec.Raw]:
    """Encode what is reported of single tools, one by one: encoding all at once would hold the interpreter lock as long."""
    statuses = provider.statuses
    suspicions: dict[str, Sequence[Finding]] = {str(name): found for name, found in of_tools.items()}
    suspicions.update((str(name), found) for name, found in provider.skills.findings.items())
    if found := provider.instructions.findings:
        suspicions[name_instructions(provider.name)] = found
    return {
        "contracts": _join(
            (name, status.as_object() | {"withheld": provider.is_quarantined(name)})
            for name, status in statuses.items()
        ),
        "suspicions": _join(
            (name, [each.to_json() | {"excerpt": conceal(each.excerpt)} for each in found])
            for name, found in suspicions.items()
        ),
        "refused": msgspec.Raw(b"[%b]" % b",".join([encode(_refusal_object(refusal)) for refusal in provider.refused])),
    }


def _join(members: Iterable[tuple[str, Json]]) -> msgspec.Raw:
    return msgspec.Raw(b"{%b}" % b",".join([b"%b:%b" % (encode(name), encode(value)) for name, value in members]))


def _refusal_object(refusal: ContractRefused) -> JsonObject:
    return {
        "tool": refusal.details.get("tool"),
        "place": refusal.details.get("place"),
        "reason": refusal.details.get("reason", refusal.message),
    }


def _format_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def _act(provider: ServerProvider, action: str) -> None:
    for supervisor in provider.supervisors:
        if action == "stop":
            supervisor.stop()
        elif action == "restart":
            supervisor.restart()
        else:
            supervisor.start()
    # A person who starts a server wants to know whether it starts. With credentials per caller, a caller's call starts it.
    if action != "stop" and provider.owned is None:
        with anyio.move_on_after(READY_S):
            await provider.supervisor.ensure_ready()


def _conceal_error(error: UpstreamUnavailable, conceal: Callable[[str], str]) -> UpstreamUnavailable:
    """Return the error without the server's secrets, which its last output may contain."""
    stderr = conceal(error.stderr) if error.stderr else None
    return UpstreamUnavailable(conceal(error.message), hint=error.hint, stderr=stderr, **error.details)


def find_server(name: str, servers: Mapping[str, ServerProvider]) -> ServerProvider:
    """Return the server of this name; raise `NotFound`, with the nearest one."""
    if (provider := servers.get(name)) is not None:
        return provider
    near = nearest_name(name[:128], servers)
    hint = f"did you mean `{near}`?" if near else "`toolpost servers` lists all of them"
    raise NotFound(f"Unknown server `{name[:128]}`.", hint=hint, server=name[:128], nearest=[near] if near else [])


def check_action(action: str) -> None:
    """Raise `NotFound` for what cannot be done with a server."""
    if action not in ACTIONS:
        raise NotFound(f"There is no action `{action[:128]}`.", hint=f"known: {', '.join(ACTIONS)}")


def _check_method(request: HttpRequest, allowed: str) -> None:
    if request.method != allowed:
        raise Refused(
            405, ErrorCode.INVALID_REQUEST, f"This path takes {allowed} only", headers=[(b"allow", allowed.encode())]
        )


def _check_not_a_form(request: HttpRequest) -> None:
    """Refuse what a page of another origin could post as a form: browsers send neither of these headers across origins
    unasked.
    """
    if not request.is_json and request.headers.get(b"x-toolpost") != b"1":
        raise Refused(415, ErrorCode.INVALID_REQUEST, "Send `Content-Type: application/json` or `X-Toolpost: 1`")


async def _send_error(
    request: HttpRequest, error: JsonObject, status: int, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    fields = [*PRIVATE_HEADERS, *(headers or ())]
    await send_json(request.send, encode({"error": error}), status=status, headers=fields)
