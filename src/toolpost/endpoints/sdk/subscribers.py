"""Everybody who is to hear what changes behind the gateway: sessions of the handshake era, subscriptions of the stateless one."""

import logging
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from toolpost.base.caller import Caller, Scope
from toolpost.base.events import event
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import QueueOverloaded, ToolpostError
from toolpost.discovery.views import View, tags_of
from toolpost.endpoints.sdk.request_context import SEAT, Seat
from toolpost.endpoints.sdk.task_notifications import open_task_news, tasks_named
from toolpost.endpoints.tasks import Tasks
from toolpost.protocol.rpc import INTERNAL_ERROR
from toolpost.providers.relay import Relay, Requester, Subscription
from toolpost.shares import EndpointShares
from toolpost.upstreams.notifications import (
    ELICITATION_COMPLETE,
    LOG_LEVELS,
    LOG_MESSAGE,
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    Notification,
    is_level_at_least,
    parse_level,
)
from toolpost.upstreams.server_requests import ClientChannel
from toolpost.upstreams.transport import ServerRefused

_log = logging.getLogger("toolpost.endpoints")

SEND_LIMIT_S: Final = 1.0

_EVENTS: Final[dict[str, ServerEvent]] = {
    TOOLS_CHANGED: ToolsListChanged(),
    PROMPTS_CHANGED: PromptsListChanged(),
    RESOURCES_CHANGED: ResourcesListChanged(),
}


class Listener:
    """One session, and what it wants to hear."""

    def __init__(self, connection: Any, seat: Seat) -> None:
        self.seat = seat
        self.level: str | None = None
        self.followed: dict[str, Subscription] = {}
        self._connection = connection

    async def tell(self, method: str, params: bytes) -> None:
        """Send a notification; a client that does not read is not waited for."""
        with anyio.move_on_after(SEND_LIMIT_S):
            await self._connection.notify(method, msgspec.json.decode(params) or None)


class Audience:
    """All listeners, told by what each of them sees."""

    def __init__(self, relay: Relay, shares: EndpointShares, tasks: Tasks | None = None) -> None:
        self._relay = relay
        self._shares = shares
        self._tasks = tasks
        self._listeners: dict[int, Listener] = {}
        self._bus = _SeatedBus()
        self._listening: set[_Listening] = set()
        self._listen = ListenHandler(self._bus)

    def listener_of(self, context: Any) -> Listener:
        """Return the session that a request belongs to, noted when it is first met."""
        connection = context.session._connection  # noqa: SLF001 (the SDK has no other way to learn of its end)
        listener = self._listeners.get(id(connection))
        if listener is None:
            listener = self._listeners[id(connection)] = Listener(connection, SEAT.get())
            connection.exit_stack.push_async_callback(self._leave, id(connection))
        listener.seat = SEAT.get()
        return listener

    async def announce(self, method: str, servers: Collection[str]) -> None:
        """Say that a list of these servers has changed, to whoever sees one of them."""
        await self._bus.publish(_EVENTS[method], lambda seat: self._is_seen(servers, seat.view))
        for listener in tuple(self._listeners.values()):
            if self._is_seen(servers, listener.seat.view):
                await self._tell(listener, method, b"{}")

    async def hear(self, news: Notification) -> None:
        """Pass on what a server said, to those concerned."""
        if news.method == RESOURCE_UPDATED:
            await self._tell_of_update(news)
        elif news.method == ELICITATION_COMPLETE:
            for listener in tuple(self._listeners.values()):
                if (listener.seat.caller.id, listener.seat.caller.session) in news.clients:
                    await self._tell(listener, news.method, news.params)
        elif news.method == LOG_MESSAGE:
            level = parse_level(news.params)
            for listener in self._concerned(news):
                is_wanted = listener.level is None or is_level_at_least(level, listener.level)
                caller = listener.seat.caller
                if is_wanted and self._may_read(news, caller) and (caller.id, caller.session) not in news.clients:
                    await self._tell(listener, LOG_MESSAGE, news.params)
        else:
            if news.method == RESOURCES_CHANGED:
                self._relay.forget(news.server)
            await self._bus.publish(_EVENTS[news.method], lambda seat: self._concerns(news, seat))
            for listener in self._concerned(news):
                await self._tell(listener, news.method, news.params)

    def _may_read(self, news: Notification, caller: Caller) -> bool:
        """Whether a log message is about this caller's calls; where that cannot be told, whether they may see those of all.

        An instance of one's own has no calls of others: `_concerned` has left out whoever it does not belong to.
        """
        if news.key or news.caller == caller.id:
            return True
        return news.caller is None and self._shares.callers.may_see_all(caller)

    async def roots_changed(self, client_channel: ClientChannel) -> None:
        """Pass on to servers that a client's folders have changed."""
        seat = SEAT.get()
        await self._relay_of(seat).notify_roots_changed(Requester(caller=seat.caller, client_channel=client_channel))

    def reseat(self, scopes_of: Callable[[CallerId], tuple[Scope, ...] | None]) -> None:
        """Let everybody who came over HTTP hear what they may see now; None ends what is open of one who may not come in."""
        for listener in self._listeners.values():
            listener.seat = _seated(listener.seat, scopes_of) or listener.seat
        for listening in tuple(self._listening):
            seat = _seated(listening.seat, scopes_of)
            if seat is None:
                listening.scope.cancel()
            else:
                listening.seat = seat

    async def set_level(self, context: Any, params: Any) -> dict[str, Any]:
        """Take `logging/setLevel`: for this session, and for every server that it sees as low as any session wants it."""
        self.listener_of(context).level = params.level
        for name, source in tuple(self._relay.providers.items()):
            seeing = [entry for entry in self._listeners.values() if self._is_seen([name], entry.seat.view)]
            levels = [entry.level for entry in seeing if entry.level is not None]
            if levels:
                await source.supervisor.set_log_level(min(levels, key=LOG_LEVELS.index))
        return {}

    async def subscribe(self, context: Any, params: Any) -> dict[str, Any]:
        """Take `resources/subscribe`."""
        listener, uri = self.listener_of(context), str(params.uri)
        if uri not in listener.followed:
            listener.followed[uri] = await self._relay_of(listener.seat).subscribe(
                uri, Requester(caller=listener.seat.caller)
            )
        return {}

    async def unsubscribe(self, context: Any, params: Any) -> dict[str, Any]:
        """Take `resources/unsubscribe`; what is not followed is followed no more already."""
        subscription = self.listener_of(context).followed.pop(str(params.uri), None)
        if subscription is not None:
            await self._relay.unsubscribe(subscription)
        return {}

    async def listen(self, context: Any, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve `subscriptions/listen`: follow the resources and tasks that it names for as long as it is open."""
        seat = SEAT.get()
        if seat.caller.transport in ("stdio", "memory"):
            # Over HTTP it is counted where it comes in, and refused there as HTTP has it.
            try:
                with self._shares.streams.held(seat.caller.id):
                    return await self._listen_as(seat, context, params)
            except QueueOverloaded as error:
                raise MCPError(INTERNAL_ERROR, error.message, error.as_object()) from error
        return await self._listen_as(seat, context, params)

    async def _listen_as(
        self, seat: Seat, context: Any, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        named = tasks_named(params) if self._tasks is not None else ()
        relay = self._relay_of(seat)
        held: list[Subscription] = []
        listening = _Listening(seat)
        self._listening.add(listening)
        try:
            for uri in params.notifications.resource_subscriptions or ():
                try:
                    held.append(await relay.subscribe(str(uri), Requester(caller=seat.caller)))
                except (ServerRefused, ToolpostError) as error:
                    # As with a resource that nobody has: it is agreed to, and never heard of.
                    event(_log, logging.INFO, "resource not followed", uri=str(uri)[:200], reason=str(error))
            _LISTENING.set(listening)
            with listening.scope:
                if self._tasks is None or not named:
                    return await self._listen(context, params)
                async with open_task_news(self._tasks, named, seat.caller, context) as acknowledging:
                    return await self._listen(acknowledging, params)
            return SubscriptionsListenResult.model_validate({"_meta": {SUBSCRIPTION_ID_META_KEY: context.request_id}})
        finally:
            self._listening.discard(listening)
            with anyio.CancelScope(shield=True):
                await self._let_go(held)

    def _relay_of(self, seat: Seat) -> Relay:
        return self._relay.select_visible(lambda name, source: seat.view.shows_whole(name, tags_of(source)))

    async def _tell_of_update(self, news: Notification) -> None:
        uri = msgspec.json.decode(news.params).get("uri")
        if not isinstance(uri, str):
            return
        await self._bus.publish(ResourceUpdated(uri=uri), lambda seat: self._concerns(news, seat))
        for listener in self._concerned(news):
            followed = listener.followed.get(uri)
            if followed is not None and followed.server == news.server:
                await self._tell(listener, news.method, news.params)

    def _concerned(self, news: Notification) -> Iterable[Listener]:
        return [entry for entry in tuple(self._listeners.values()) if self._concerns(news, entry.seat)]

    def _concerns(self, news: Notification, seat: Seat) -> bool:
        is_theirs = not news.key or news.key == f"{seat.caller.id}\n{seat.caller.session or ''}"
        source = self._relay.providers.get(news.server)
        if not is_theirs or (source is None and news.tags is None):
            return False
        tags = tags_of(source) if source is not None else news.tags or frozenset()
        # What has no name to match is for those alone who see the whole server.
        shows = seat.view.shows if news.method == PROMPTS_CHANGED else seat.view.shows_whole
        return shows(news.server, tags)

    def _is_seen(self, servers: Collection[str], view: View) -> bool:
        """Whether a view shows one of these; of one that is gone nobody knows the tags any more, so all tags may."""
        return "*" in servers or any(
            view.shows(name, tags_of(source))
            if (source := self._relay.providers.get(name))
            else view.source in (None, name)
            for name in servers
        )

    async def _tell(self, listener: Listener, method: str, params: bytes) -> None:
        try:
            await listener.tell(method, params)
        except Exception as error:  # noqa: BLE001 (a client that is gone must not keep the others from hearing it)
            event(_log, logging.DEBUG, "notification not sent", method=method, reason=str(error))

    async def _leave(self, number: int) -> None:
        listener = self._listeners.pop(number, None)
        if listener is not None:
            await self._let_go(listener.followed.values())

    async def _let_go(self, subscriptions: Iterable[Subscription]) -> None:
        for subscription in tuple(subscriptions):
            try:
                with anyio.move_on_after(SEND_LIMIT_S):
                    await self._relay.unsubscribe(subscription)
            except (ServerRefused, ToolpostError, MCPError) as error:
                event(_log, logging.DEBUG, "not unsubscribed", uri=subscription.uri[:200], reason=str(error))


class _Listening:
    """One open `subscriptions/listen`: whose it is, and what ends it."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.scope = anyio.CancelScope()


_LISTENING: Final[ContextVar[_Listening]] = ContextVar("toolpost_listening")


def _seated(seat: Seat, scopes_of: Callable[[CallerId], tuple[Scope, ...] | None]) -> Seat | None:
    if seat.caller.transport != "http":
        return seat
    scopes = scopes_of(seat.caller.id)
    return None if scopes is None else replace(seat, view=seat.view.path.within(scopes))


class _SeatedBus:
    """The SDK's subscriptions, each with the seat of whoever made it."""

    def __init__(self) -> None:
        self._subscribed: dict[object, tuple[Callable[[ServerEvent], None], _Listening]] = {}

    async def publish(self, what: ServerEvent, concerns: Callable[[Seat], bool] = lambda _seat: True) -> None:
        """Tell whoever is concerned."""
        for deliver, listening in tuple(self._subscribed.values()):
            if concerns(listening.seat):
                deliver(what)
        await anyio.lowlevel.checkpoint()

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Note a subscription; called by the SDK while it handles the request that makes it."""
        token = object()
        self._subscribed[token] = (listener, _LISTENING.get())

        def unsubscribe() -> None:
            self._subscribed.pop(token, None)

        return unsubscribe
