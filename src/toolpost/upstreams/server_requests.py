"""What a server asks while it answers (elicitation, sampling, roots): of whom, and what it is told where nobody can be asked."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.protocol.era import CLIENT_CAPABILITIES, LOG_LEVEL
from toolpost.protocol.shape import BadShape, decode
from toolpost.upstreams.message import IncomingMessage
from toolpost.upstreams.transport import ServerRefused, encode

_log = logging.getLogger("toolpost.upstreams")

ELICITATION: Final = "elicitation/create"
SAMPLING: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"

CAPABILITY_OF: Final = {ELICITATION: "elicitation", SAMPLING: "sampling", ROOTS: "roots"}
"""Every question, and the capability that a client declares if it can be asked it."""

CALLBACK_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""What a server may ask back about; lists and signs of life are our own."""

OFFERED_CAPABILITIES: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {"listChanged": True},
}
"""What a server of the handshake era is told we can: it is met before any caller, so all that some caller may be able to."""

ROOTS_CHANGED: Final = "notifications/roots/list_changed"

ROOTS_LIMIT_S: Final = 30.0
"""How long a client may take to answer what is asked outside any call."""

ELICITATIONS_LIMIT: Final = 100
"""Of how many pages that clients were sent to it is remembered whose they are."""

URL_ELICITATION_REQUIRED: Final = -32042
"""The error of a call that cannot be made before its client has been to a page."""

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603


class ClientChannel(Protocol):
    """Whoever made a call, as far as the server that handles it may turn to them."""

    @property
    def client(self) -> Hashable:
        """The same for all calls of one client."""
        ...

    @property
    def capabilities(self) -> JsonObject:
        """What the client declared, in the words of the protocol."""
        ...

    @property
    def log_level(self) -> str | None:
        """From which level on the client wants to hear what the server logs; None for not at all."""
        ...

    def hears(self, level: str) -> bool:
        """Whether the client wants to hear what the server logs at this level."""
        ...

    @property
    def takes_rounds(self) -> bool:
        """Whether the client takes questions as the result of its request, and sends it again with the answers."""
        ...

    @property
    def is_asked(self) -> bool:
        """Whether a question is with the client."""
        ...

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question to the client and return the JSON of its answer, or raise `ServerRefused`."""
        ...

    def tell(self, method: str, params: bytes) -> None:
        """Pass on a notification that belongs to the call."""
        ...


def select_capabilities(capabilities: object) -> JsonObject:
    """Return those of a client's capabilities that a server may ask for; empty if there are none."""
    if not isinstance(capabilities, dict):
        return {}
    return {name: capabilities[name] for name in CAPABILITY_OF.values() if isinstance(capabilities.get(name), dict)}


def make_meta(client_channel: ClientChannel | None, envelope: JsonObject, meta: JsonObject | None) -> JsonObject:
    """Write the `_meta` of a request; a server of the stateless era reads there what the calling client can."""
    carried = envelope | meta if meta else dict(envelope)
    if client_channel is not None and envelope:
        carried[CLIENT_CAPABILITIES] = client_channel.capabilities
        if client_channel.log_level is not None:
            carried[LOG_LEVEL] = client_channel.log_level
    return carried


def find_only_client(candidates: Iterable[ClientChannel | None]) -> ClientChannel | None:
    """Say who is meant by a question that does not say it: the one client that is being served, or nobody."""
    known = list(candidates)
    if len({client_channel.client if client_channel else None for client_channel in known}) > 1:
        # Whoever gets it wrong shows one caller's affairs to another.
        raise ServerRefused(INTERNAL_ERROR, "Several clients are being served, and nothing says which of them is asked")
    return known[-1] if known else None


def check_client_can_answer(method: str, params: bytes, client_channel: ClientChannel | None) -> None:
    """Refuse a question that the client has not said it can answer."""
    if client_channel is None:
        raise ServerRefused(METHOD_NOT_FOUND, f"{method} has nobody to go to")
    declared = client_channel.capabilities.get(CAPABILITY_OF[method])
    if not isinstance(declared, dict):
        raise ServerRefused(METHOD_NOT_FOUND, f"The client that made this call does not take {method}")
    asked = _parse_params(params)
    if method == ELICITATION:
        mode = asked.get("mode", "form")
        # Before there were modes a client declared an empty object, and meant forms.
        if mode not in (declared or {"form": {}}):
            raise ServerRefused(INVALID_PARAMS, f"The client that made this call takes no elicitation of mode {mode}")
    if method == SAMPLING and ("tools" in asked or "toolChoice" in asked) and "tools" not in declared:
        raise ServerRefused(INVALID_PARAMS, "The client that made this call takes no tools for sampling")


@dataclass(slots=True)
class _OpenRequest:
    task: "asyncio.Task[None]"
    owner: object
    """What it ends with."""
    rooted: Hashable | None
    """The client, if it was asked for its folders."""


class ServerRequests:
    """The questions of one server that wait for an answer."""

    def __init__(self, server: str, send: Callable[[bytes], None]) -> None:
        self._server = server
        self._send = send
        self._waiting: dict[int | str | None, _OpenRequest] = {}
        self._sent_to: dict[str, Hashable] = {}
        """Which client was sent to a page, by the id of the elicitation."""
        self._rooted: set[Hashable] = set()
        """Clients whose folders the server has asked for."""
        self._standing: ClientChannel | None = None
        """The client that said last that its folders have changed."""

    def take(self, message: IncomingMessage, candidates: Iterable[ClientChannel | None], *, owner: object) -> None:
        """Answer a request of the server's own, or have it answered; it ends with its owner."""
        method = message.method or ""
        if method == "ping":
            self._send(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % encode(message.id))
            return
        try:
            if method not in CAPABILITY_OF:
                raise ServerRefused(METHOD_NOT_FOUND, f"{method} has nobody to go to")
            known = list(candidates)
            client_channel = find_only_client(known) if known or method != ROOTS else self._standing
            check_client_can_answer(method, bytes(message.params), client_channel)
            if message.id in self._waiting:
                raise ServerRefused(-32600, "A request with this id is in flight already")
        except ServerRefused as refusal:
            self._refuse(message, refusal)
            return
        assert client_channel is not None
        self.note_request(method, bytes(message.params), client_channel)
        task = asyncio.create_task(self._ask(message, client_channel))
        self._waiting[message.id] = _OpenRequest(task, owner, client_channel.client if method == ROOTS else None)
        task.add_done_callback(lambda _task: self._waiting.pop(message.id, None))

    def __len__(self) -> int:
        return len(self._waiting)

    def note_error(self, refusal: ServerRefused, client_channel: ClientChannel | None) -> None:
        """Remember whom a server sends to pages by refusing a call."""
        if refusal.code == URL_ELICITATION_REQUIRED and client_channel is not None and isinstance(refusal.data, dict):
            pages = refusal.data.get("elicitations")
            for page in pages if isinstance(pages, list) else ():
                self._note_elicitation(page if isinstance(page, dict) else {}, client_channel)

    def pop_elicitation_clients(self, params: bytes) -> frozenset[Hashable]:
        """Say which client was sent to the page that a server says is done with; once."""
        client = self._sent_to.pop(str(_parse_params(params).get("elicitationId")), None)
        return frozenset() if client is None else frozenset({client})

    def allow_roots_requests(self, client_channel: ClientChannel) -> bool:
        """Let a server ask for the folders of a client at any time, from now on; False if it never did during a call."""
        if client_channel.client not in self._rooted:
            return False
        self._standing = client_channel
        return True

    def note_request(self, method: str, params: bytes, client_channel: ClientChannel) -> None:
        if method == ROOTS:
            self._rooted.add(client_channel.client)
        elif method == ELICITATION and b"elicitationId" in params:
            self._note_elicitation(_parse_params(params), client_channel)

    def _note_elicitation(self, page: JsonObject, client_channel: ClientChannel) -> None:
        if isinstance(number := page.get("elicitationId"), str):
            self._sent_to[number] = client_channel.client
            if len(self._sent_to) > ELICITATIONS_LIMIT:
                # Of the caller who has most: one who is sent to page after page pushes out nobody else's.
                callers = [_caller_of(client) for client in self._sent_to.values()]
                most, _ = Counter(callers).most_common(1)[0]
                del self._sent_to[next(page for page, client in self._sent_to.items() if _caller_of(client) == most)]

    def end(self, owner: object, *, successor: object | None = None) -> None:
        """Give up the questions of a call that has ended, or leave them to another of the same client."""
        for waiting in tuple(self._waiting.values()):
            if waiting.owner != owner:
                continue
            if successor is not None:
                waiting.owner = successor
            elif self._standing is not None and waiting.rooted == self._standing.client:
                # It was asked because folders have changed, and the call was there by chance.
                waiting.owner = None
                asyncio.get_running_loop().call_later(ROOTS_LIMIT_S, waiting.task.cancel, "ended")
            else:
                waiting.task.cancel("ended")

    def cancel_request(self, params: bytes) -> None:
        """Give up a question that the server takes back."""
        found = self._waiting.get(_parse_params(params).get("requestId"))
        if found is not None:
            found.task.cancel("taken back")

    async def _ask(self, message: IncomingMessage, client_channel: ClientChannel) -> None:
        try:
            result = await client_channel.ask(message.method or "", bytes(message.params) or b"{}")
        except ServerRefused as refusal:
            self._refuse(message, refusal)
        except asyncio.CancelledError as cancelled:
            if cancelled.args != ("taken back",):
                self._refuse(message, ServerRefused(INTERNAL_ERROR, "The call that this belonged to has ended"))
            raise
        except Exception as error:  # noqa: BLE001 (a bug of ours must not leave the server waiting)
            event(_log, logging.ERROR, "question not asked", server=self._server, exception=error)
            self._refuse(message, ServerRefused(INTERNAL_ERROR, "Something went wrong on the way to the client"))
        else:
            self._send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(message.id), result))

    def _refuse(self, message: IncomingMessage, refusal: ServerRefused) -> None:
        error: JsonObject = {"code": refusal.code, "message": refusal.message}
        if refusal.data is not None:
            error["data"] = refusal.data
        self._send(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode(message.id), encode(error)))


def _caller_of(client: Hashable) -> Hashable:
    """Return the part of a client that several clients of one caller share."""
    return client[0] if isinstance(client, tuple) else client


def _parse_params(params: bytes) -> JsonObject:
    try:
        value: Any = decode(params or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadShape):
        return {}
    return value if isinstance(value, dict) else {}
