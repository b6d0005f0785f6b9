"""Requests of a server to the client of a call (elicitation, sampling, roots): which client gets them, and when they end.

A server sends them while it handles a call, and they end with that call. `ServerRequests` keeps the open ones of one server;
the transport decides which calls they may be about, and the endpoints implement `ClientChannel`, the path to the client. Two
more channels stand before it: `WithoutExtensions` leaves something out, `SamplingChannel` answers for a client without a model.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from toolpost.base import JsonObject, event
from toolpost.base.caller import Caller
from toolpost.contracts.apps import EXTENSION, MIME_TYPE
from toolpost.contracts.errors import InvalidRequest, ToolpostError
from toolpost.protocol.extensions import declares_extensions, is_extension_request, select_extensions
from toolpost.protocol.shape import BadShape, decode
from toolpost.upstreams.transport import ServerRefused, encode

if TYPE_CHECKING:
    # Authors' code imports this module, and needs no messages.
    from toolpost.upstreams.message import IncomingMessage

_log = logging.getLogger("toolpost.upstreams")

ELICITATION: Final = "elicitation/create"
SAMPLING: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"

CAPABILITY_OF: Final = {ELICITATION: "elicitation", SAMPLING: "sampling", ROOTS: "roots"}
"""The methods that a server may send, and the capability by which a client declares that it answers them."""

CALLBACK_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests of MCP that have a client, so that a server may send requests of its own while it handles them."""

OFFERED_CAPABILITIES: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {"listChanged": True},
    # Servers give their tools apps for clients that show them alone, and one list is for all clients.
    "extensions": {EXTENSION: {"mimeTypes": [MIME_TYPE]}},
}
"""Capabilities that the gateway declares in a handshake, which comes before any call: all that some client may have."""

ROOTS_CHANGED: Final = "notifications/roots/list_changed"

ROOTS_LIMIT_S: Final = 30.0
"""How long a client may take to answer `roots/list` outside any call."""

OPEN_LIMIT: Final = 1_000
"""How many requests of one server may be open: each is a task, and a message to a client."""

ROOTS_CLIENTS_LIMIT: Final = 1_000
"""How many clients are remembered whose roots a server has asked for; of others it is not told that they changed."""

ELICITATIONS_LIMIT: Final = 100
"""How many open URL elicitations are remembered with their client."""

URL_ELICITATION_REQUIRED: Final = -32042
"""The error of a call that needs a URL elicitation first."""

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603


class ClientChannel(Protocol):
    """The path from a server back to the client whose call it handles."""

    @property
    def client(self) -> Hashable:
        """Identifies the client: equal for all calls of one client, different for two clients."""
        ...

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that the client declared, as in MCP."""
        ...

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that the client wants; None if it has set none, see `wants_log`."""
        ...

    def wants_log(self, level: str) -> bool:
        """Whether the client wants log messages of this level."""
        ...

    @property
    def takes_input_required(self) -> bool:
        """Whether the client takes an `input_required` result, and sends its request again with the answers."""
        ...

    @property
    def can_tell(self) -> bool:
        """Whether `tell` reaches the client at this moment."""
        ...

    @property
    def has_open_request(self) -> bool:
        """Whether a server request waits for an answer of the client."""
        ...

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:
        """Send a server request to the client and return the JSON of its result, or raise `ServerRefused`.

        `key` is its name where the protocol names requests, as in an `input_required` result; without one, a name is made.
        """
        ...

    def tell(self, method: str, params: bytes) -> None:
        """Forward a notification that belongs to the call."""
        ...


def select_capabilities(capabilities: object) -> JsonObject:
    """Select the capabilities of a client that concern servers: requests that it answers, and extensions; empty without any."""
    if not isinstance(capabilities, dict):
        return {}
    return _select_callbacks(capabilities) | select_extensions(capabilities)


def takes_server_requests(capabilities: object) -> bool:
    """Whether a client answers requests of MCP's own."""
    return isinstance(capabilities, dict) and bool(_select_callbacks(capabilities))


def _select_callbacks(capabilities: JsonObject) -> JsonObject:
    return {name: capabilities[name] for name in CAPABILITY_OF.values() if isinstance(capabilities.get(name), dict)}


def has_client(method: str) -> bool:
    """Whether a request has a client, so that a server may send requests of its own while it handles it."""
    return method in CALLBACK_METHODS or is_extension_request(method)


def find_only_client(candidates: Iterable[ClientChannel | None]) -> ClientChannel | None:
    """Return the one client among the candidates, None if there are none; raise `ServerRefused` if there are several."""
    known = list(candidates)
    if len({client_channel.client if client_channel else None for client_channel in known}) > 1:
        # A guess could show one caller the data of another.
        raise ServerRefused(INTERNAL_ERROR, "Several clients are being served, and nothing says which of them is asked")
    return known[-1] if known else None


def check_client_can_answer(method: str, params: bytes, client_channel: ClientChannel | None) -> None:
    """Raise `ServerRefused` unless the client declared the capability that this request needs; an extension's needs any."""
    if method not in CAPABILITY_OF and not is_extension_request(method):
        raise ServerRefused(METHOD_NOT_FOUND, f"{method[:60]} is not a request that a client takes")
    if client_channel is None:
        raise ServerRefused(METHOD_NOT_FOUND, f"There is no client to answer {method}")
    if method not in CAPABILITY_OF:
        if not declares_extensions(client_channel.capabilities):
            raise ServerRefused(METHOD_NOT_FOUND, f"The client that made this call declares no extension for {method}")
        return
    declared = client_channel.capabilities.get(CAPABILITY_OF[method])
    if not isinstance(declared, dict):
        raise ServerRefused(METHOD_NOT_FOUND, f"The client that made this call does not take {method}")
    request = _parse_params(params)
    if method == ELICITATION:
        mode = request.get("mode", "form")
        # Before MCP had modes, a client declared an empty object and meant forms.
        if mode not in (declared or {"form": {}}):
            raise ServerRefused(INVALID_PARAMS, f"The client that made this call takes no elicitation of mode {mode}")
    if method == SAMPLING and ("tools" in request or "toolChoice" in request) and "tools" not in declared:
        raise ServerRefused(INVALID_PARAMS, "The client that made this call takes no tools for sampling")


async def ask_form(client: ClientChannel, message: str, schema: JsonObject) -> bytes:
    """Return a client's answer to a form, as JSON; raises `ServerRefused` if it takes no forms, or as the client refuses."""
    params = encode({"mode": "form", "message": message, "requestedSchema": schema})
    check_client_can_answer(ELICITATION, params, client)
    return await client.ask(ELICITATION, params)


@dataclass(slots=True)
class _OpenRequest:
    task: "asyncio.Task[None]"
    owner: object
    """The call that it ends with."""
    roots_client: Hashable | None
    """The client, for `roots/list`; None for any other method."""
    is_withdrawn: bool = False
    """Whether the server has cancelled it, so that it must not be answered."""


class ServerRequests:
    """The open requests of one server, and what has to be remembered of earlier ones."""

    def __init__(self, server: str, send: Callable[[bytes], None]) -> None:
        self._server = server
        self._send = send
        self._open: dict[int | str | None, _OpenRequest] = {}
        self._elicitations: dict[str, Hashable] = {}
        """The client of each URL elicitation, by its id; the oldest first."""
        self._roots_clients: dict[Hashable, None] = {}
        """Clients whose roots the server has asked for; the one that was asked longest ago first."""
        self._roots_channel: ClientChannel | None = None
        """The client that last announced a change of its roots: it answers `roots/list` outside calls too."""

    def take(self, message: "IncomingMessage", candidates: Iterable[ClientChannel | None], *, owner: object) -> None:
        """Answer `ping`, or pass the request to the one client among the candidates; it is cancelled when `owner` ends.

        The server gets an error if no client, or more than one, can be meant.
        """
        method = message.method or ""
        if method == "ping":
            self._send(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % encode(message.id))
            return
        try:
            known = list(candidates)
            client_channel = find_only_client(known) if known or method != ROOTS else self._roots_channel
            check_client_can_answer(method, bytes(message.params), client_channel)
            if message.id in self._open:
                raise ServerRefused(-32600, "A request with this id is in flight already")
            if len(self._open) >= OPEN_LIMIT:
                raise ServerRefused(INTERNAL_ERROR, f"More than {OPEN_LIMIT} requests of this server are open")
        except ServerRefused as refusal:
            self._refuse(message, refusal)
            return
        assert client_channel is not None
        if method == ROOTS:
            self._roots_clients.pop(client_channel.client, None)
            self._roots_clients[client_channel.client] = None
            if len(self._roots_clients) > ROOTS_CLIENTS_LIMIT:
                del self._roots_clients[next(iter(self._roots_clients))]
        elif method == ELICITATION and b"elicitationId" in bytes(message.params):
            self._note_elicitation(_parse_params(bytes(message.params)), client_channel)
        task = asyncio.create_task(self._ask(message, client_channel))
        request = _OpenRequest(task, owner, client_channel.client if method == ROOTS else None)
        self._open[message.id] = request
        task.add_done_callback(lambda _task: self._close(message, request))

    def __len__(self) -> int:
        return len(self._open)

    def note_error(self, refusal: ServerRefused, client_channel: ClientChannel | None) -> None:
        """Remember the URL elicitations that the error of a call asks for, with the client of that call."""
        if refusal.code == URL_ELICITATION_REQUIRED and client_channel is not None and isinstance(refusal.data, dict):
            elicitations = refusal.data.get("elicitations")
            for elicitation in elicitations if isinstance(elicitations, list) else ():
                self._note_elicitation(elicitation if isinstance(elicitation, dict) else {}, client_channel)

    def pop_elicitation_clients(self, params: bytes) -> frozenset[Hashable]:
        """Return and forget the client of a URL elicitation that is complete; empty if it is not known."""
        client = self._elicitations.pop(str(_parse_params(params).get("elicitationId")), None)
        return frozenset() if client is None else frozenset({client})

    def allow_roots_requests(self, client_channel: ClientChannel) -> bool:
        """Let the server ask for a client's roots outside calls, from now on; False if it never asked during a call."""
        if client_channel.client not in self._roots_clients:
            return False
        self._roots_channel = client_channel
        return True

    def _note_elicitation(self, elicitation: JsonObject, client_channel: ClientChannel) -> None:
        if isinstance(key := elicitation.get("elicitationId"), str):
            self._elicitations[key] = client_channel.client
            if len(self._elicitations) > ELICITATIONS_LIMIT:
                # The oldest of the caller that has most, so that one caller cannot push out the elicitations of others.
                callers = [_caller_of(client) for client in self._elicitations.values()]
                most, _ = Counter(callers).most_common(1)[0]
                del self._elicitations[
                    next(k for k, client in self._elicitations.items() if _caller_of(client) == most)
                ]

    def end(self, owner: object, *, successor: object | None = None) -> None:
        """Cancel the open requests of a call that has ended, or hand them over to another call of the same client."""
        for request in tuple(self._open.values()):
            if request.owner != owner:
                continue
            if successor is not None:
                request.owner = successor
            elif self._roots_channel is not None and request.roots_client == self._roots_channel.client:
                # The server asked because the roots changed; that the call was in flight is a coincidence.
                request.owner = None
                asyncio.get_running_loop().call_later(ROOTS_LIMIT_S, request.task.cancel)
            else:
                request.task.cancel()

    def cancel_request(self, params: bytes) -> None:
        """Cancel the request that a `notifications/cancelled` of the server names; unknown ids are ignored."""
        found = self._open.get(_parse_params(params).get("requestId"))
        if found is not None:
            found.is_withdrawn = True
            found.task.cancel()

    async def _ask(self, message: "IncomingMessage", client_channel: ClientChannel) -> None:
        try:
            result = await client_channel.ask(message.method or "", bytes(message.params) or b"{}")
        except ServerRefused as refusal:
            self._refuse(message, refusal)
        except Exception as error:  # noqa: BLE001 (a bug of ours must not leave the server waiting)
            event(_log, logging.ERROR, "server request failed", server=self._server, exception=error)
            self._refuse(message, ServerRefused(INTERNAL_ERROR, "The request could not be sent to the client"))
        else:
            self._send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(message.id), result))

    def _close(self, message: "IncomingMessage", request: _OpenRequest) -> None:
        del self._open[message.id]
        # Answered here and not by the task, which runs no step at all if its call ends in the turn in which it was made.
        if request.task.cancelled() and not request.is_withdrawn:
            self._refuse(message, ServerRefused(INTERNAL_ERROR, "The call that this belonged to has ended"))

    def _refuse(self, message: "IncomingMessage", refusal: ServerRefused) -> None:
        error: JsonObject = {"code": refusal.code, "message": refusal.message}
        if refusal.data is not None:
            error["data"] = refusal.data
        self._send(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode(message.id), encode(error)))


def _caller_of(client: Hashable) -> Hashable:
    """Return the part of a client's identity that all clients of one caller share."""
    return client[0] if isinstance(client, tuple) else client


def _parse_params(params: bytes) -> JsonObject:
    try:
        value: Any = decode(params or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadShape):
        return {}
    return value if isinstance(value, dict) else {}


class WithoutExtensions:
    """The channel to a client, for a server whose extensions do not pass."""

    takes_input_required: bool

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self.takes_input_required = channel.takes_input_required
        self.client = channel.client
        self.capabilities = _select_callbacks(channel.capabilities)
        self.log_level = channel.log_level
        self.can_tell = False
        """No notification of an extension; log messages are asked for by `wants_log`."""
        self.wants_log = channel.wants_log
        self.ask = channel.ask
        self.tell = channel.tell

    @property
    def has_open_request(self) -> bool:
        return self._channel.has_open_request


Sampler = Callable[[bytes, Caller], Awaitable[bytes]]
"""Takes the parameters of a `sampling/createMessage` and the caller, and returns its result as JSON. Raises `InvalidRequest`
for a request that it cannot answer, and another `ToolpostError` if it has no answer."""


@dataclass(frozen=True)
class SamplingModel:
    """Answers sampling requests of servers during calls whose client has no model."""

    answer: Sampler


def with_sampling(channel: ClientChannel | None, caller: Caller, sampler: Sampler) -> ClientChannel:
    """Return the channel of a call on which sampling is answered: by the client if it can, else by `sampler`."""
    if channel is not None and isinstance(channel.capabilities.get("sampling"), dict):
        return channel
    return SamplingChannel(channel, caller, sampler)


class SamplingChannel:
    """The channel to a client, if there is one, whose sampling requests are answered in its place."""

    takes_input_required = False
    """Such a result would ask the client for what it cannot answer, so its requests are answered one by one."""

    def __init__(self, channel: ClientChannel | None, caller: Caller, sampler: Sampler) -> None:
        self._channel = channel
        self._caller = caller
        self._sampler = sampler
        # Without a channel a client gets nothing of what a server sends, so that all of one caller may pass for one.
        self.client: Hashable = (caller.id, "sampling") if channel is None else channel.client
        self.capabilities: JsonObject = ({} if channel is None else channel.capabilities) | {"sampling": {}}

    @property
    def log_level(self) -> str | None:
        """The client's."""
        return None if self._channel is None else self._channel.log_level

    def wants_log(self, level: str) -> bool:
        """Whether the client wants log messages of this level."""
        return self._channel is not None and self._channel.wants_log(level)

    @property
    def can_tell(self) -> bool:
        """Whether the client can be told something."""
        return self._channel is not None and self._channel.can_tell

    @property
    def has_open_request(self) -> bool:
        """Whether a request waits for the client itself."""
        return self._channel is not None and self._channel.has_open_request

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:
        """Answer sampling; send anything else to the client."""
        if method == SAMPLING:
            try:
                return await self._sampler(params, self._caller)
            except ToolpostError as error:
                code = INVALID_PARAMS if isinstance(error, InvalidRequest) else INTERNAL_ERROR
                raise ServerRefused(code, error.message) from error
        if self._channel is None:
            raise ServerRefused(METHOD_NOT_FOUND, f"There is no client to answer {method}")
        return await self._channel.ask(method, params, key=key)

    def tell(self, method: str, params: bytes) -> None:
        """Forward a notification to the client."""
        if self._channel is not None:
            self._channel.tell(method, params)
