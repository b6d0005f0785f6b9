"""The clients to notify of changes behind the gateway: sessions of the handshake era, `subscriptions/listen` of the stateless
era.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.lowlevel
import mcp_types
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

from toolpost.base import JsonObject, event
from toolpost.base.caller import Caller, Scope, owner_of
from toolpost.contracts.errors import QueueOverloaded, ToolpostError
from toolpost.discovery.views import View, tags_of
from toolpost.endpoints.sdk.client import SEND_LIMIT_S
from toolpost.endpoints.sdk.request_context import VIEWER, Viewer
from toolpost.endpoints.tasks.endpoint import TaskEndpoint
from toolpost.endpoints.tasks.notifications import (
    AcknowledgingSession,
    ListenContext,
    open_task_notifications,
    parse_task_ids,
)
from toolpost.fairness import EndpointShares
from toolpost.protocol.era import CLIENT_CAPABILITIES
from toolpost.protocol.extensions import declares_extensions, select_extensions
from toolpost.protocol.rpc import INTERNAL_ERROR
from toolpost.providers.relay import Relay, Subscription
from toolpost.providers.requester import Requester
from toolpost.providers.server_provider import ServerProvider
from toolpost.refusals import NAME_LIMIT
from toolpost.upstreams import ClientChannel, ServerRefused
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

_log = logging.getLogger("toolpost.endpoints")

FOLLOWED_LIMIT: Final = 1_000
"""How many resources one session, or one `subscriptions/listen`, may follow: each is kept here and at its server."""

_EVENTS: Final[dict[str, ServerEvent]] = {
    TOOLS_CHANGED: ToolsListChanged(),
    PROMPTS_CHANGED: PromptsListChanged(),
    RESOURCES_CHANGED: ResourcesListChanged(),
}


class SubscribedSession:
    """One session of the handshake era, and its subscriptions."""

    def __init__(self, connection: Any, viewer: Viewer) -> None:
        self.viewer = viewer
        self.level: str | None = None
        self.followed: dict[str, Subscription] = {}
        self._connection = connection

    @property
    def takes_extensions(self) -> bool:
        """Whether its client declares extensions."""
        client = self.viewer.caller.client
        return client is not None and declares_extensions(select_extensions(client.capabilities))

    async def tell(self, method: str, params: bytes) -> None:
        """Send a notification; give up after `SEND_LIMIT_S` on a client that does not read."""
        with anyio.move_on_after(SEND_LIMIT_S):
            await self._connection.notify(method, msgspec.json.decode(params) or None)


class Subscribers:
    """All sessions and subscriptions. Each is sent only notifications of servers that it sees."""

    def __init__(self, relay: Relay, shares: EndpointShares, tasks: TaskEndpoint) -> None:
        self._relay = relay
        self._shares = shares
        self._tasks = tasks
        self._sessions: dict[int, SubscribedSession] = {}
        self._bus = _FilteredBus()
        self._subscriptions: set[_OpenSubscription] = set()
        self._listen = ListenHandler(self._bus)

    def session_of(self, context: Any) -> SubscribedSession:
        """Return the session of a request, registered with its first request."""
        connection = context.session._connection  # noqa: SLF001 (the SDK has no other way to learn of its end)
        session = self._sessions.get(id(connection))
        if session is None:
            session = self._sessions[id(connection)] = SubscribedSession(connection, VIEWER.get())
            connection.exit_stack.push_async_callback(self._leave, id(connection))
        session.viewer = VIEWER.get()
        return session

    async def announce(self, method: str, servers: Collection[str]) -> None:
        """Notify all that see one of these servers that a list has changed."""
        await self._bus.publish(_EVENTS[method], lambda viewer: self._is_seen(servers, viewer.view))
        for session in tuple(self._sessions.values()):
            if self._is_seen(servers, session.viewer.view):
                await self._tell(session, method, b"{}")

    async def announce_to_owner(self, owner: str, servers: Collection[str]) -> None:
        """Notify the clients of one owner that servers list it other tools now."""
        await self._bus.publish(
            _EVENTS[TOOLS_CHANGED],
            lambda viewer: owner_of(viewer.caller) == owner and self._is_seen(servers, viewer.view),
        )
        for session in tuple(self._sessions.values()):
            if owner_of(session.viewer.caller) == owner and self._is_seen(servers, session.viewer.view):
                await self._tell(session, TOOLS_CHANGED, b"{}")

    async def forward(self, notification: Notification) -> None:
        """Pass a server's notification on to those who may see it."""
        if notification.method == RESOURCE_UPDATED:
            await self._forward_update(notification)
        elif notification.method == ELICITATION_COMPLETE:
            for session in tuple(self._sessions.values()):
                if (session.viewer.caller.id, session.viewer.caller.session) in notification.clients:
                    await self._tell(session, notification.method, notification.params)
        elif notification.method == LOG_MESSAGE:
            await self._forward_log(notification)
        elif notification.is_extension:
            await self._forward_extension(notification)
        else:
            if notification.method == RESOURCES_CHANGED:
                self._relay.forget(notification.server)
            await self._bus.publish(_EVENTS[notification.method], lambda viewer: self._concerns(notification, viewer))
            for session in self._sessions_concerned(notification):
                await self._tell(session, notification.method, notification.params)

    async def _forward_log(self, notification: Notification) -> None:
        level = parse_level(notification.params)
        for session in self._sessions_concerned(notification):
            is_wanted = session.level is None or is_level_at_least(level, session.level)
            caller = session.viewer.caller
            is_told = (caller.id, caller.session) in notification.clients
            if is_wanted and self._may_read(notification, caller) and not is_told:
                await self._tell(session, LOG_MESSAGE, notification.params)

    async def _forward_extension(self, notification: Notification) -> None:
        """Pass on what an extension of a server sends, to clients that declare extensions.

        It may carry data of the caller whose call it is about, so that no other gets it. Without parameters it carries none.
        """
        is_public = notification.params in (b"", b"{}", b"null")
        listeners: list[SubscribedSession | _OpenSubscription] = [*self._sessions.values(), *self._subscriptions]
        for listener in listeners:
            caller = listener.viewer.caller
            if (
                listener.takes_extensions
                and self._concerns(notification, listener.viewer)
                and (is_public or self._may_read(notification, caller))
                and (caller.id, caller.session) not in notification.clients
            ):
                await self._tell(listener, notification.method, notification.params)

    def _may_read(self, notification: Notification, caller: Caller) -> bool:
        """Whether a log message is about this caller's calls; where that is unknown, whether the caller may see those of all.

        An instance of one caller has no calls of others: `_sessions_concerned` has left out everyone else.
        """
        if notification.key or notification.owner or notification.caller == caller.id:
            return True
        return notification.caller is None and self._shares.callers.may_see_all(caller)

    async def roots_changed(self, client_channel: ClientChannel) -> None:
        """Tell the servers that a client's roots have changed."""
        viewer = VIEWER.get()
        await self._relay_of(viewer).notify_roots_changed(
            Requester(caller=viewer.caller, client_channel=client_channel)
        )

    def update_views(self, scopes_of: Callable[[Caller], tuple[Scope, ...] | None]) -> None:
        """Update the views of everything opened over HTTP; subscriptions of removed callers end. `scopes_of` returns None for
        those.
        """
        for session in self._sessions.values():
            session.viewer = _update_viewer(session.viewer, scopes_of) or session.viewer
        for subscription in tuple(self._subscriptions):
            viewer = _update_viewer(subscription.viewer, scopes_of)
            if viewer is None:
                subscription.scope.cancel()
            else:
                subscription.viewer = viewer

    async def set_level(self, context: Any, params: Any) -> dict[str, Any]:
        """Handle `logging/setLevel`: for this session, and for each server that it sees the lowest level that any session
        wants.
        """
        self.session_of(context).level = params.level
        for name, provider in tuple(self._relay.providers.items()):
            if not isinstance(provider, ServerProvider):
                continue
            seeing = [entry for entry in self._sessions.values() if self._is_seen([name], entry.viewer.view)]
            levels = [entry.level for entry in seeing if entry.level is not None]
            for one in (provider.by_owner or (provider,)) if levels else ():
                await one.supervisor.set_log_level(min(levels, key=LOG_LEVELS.index))
        return {}

    async def subscribe(self, context: Any, params: Any) -> dict[str, Any]:
        """Handle `resources/subscribe`."""
        session, uri = self.session_of(context), str(params.uri)
        if uri not in session.followed:
            if len(session.followed) >= FOLLOWED_LIMIT:
                error = QueueOverloaded(
                    f"This session is subscribed to {FOLLOWED_LIMIT:,} resources already.",
                    hint="unsubscribe from some of them",
                )
                raise MCPError(INTERNAL_ERROR, error.message, error.as_object())
            session.followed[uri] = await self._relay_of(session.viewer).subscribe(
                uri, Requester(caller=session.viewer.caller)
            )
        return {}

    async def unsubscribe(self, context: Any, params: Any) -> dict[str, Any]:
        """Handle `resources/unsubscribe`; does nothing without a subscription."""
        subscription = self.session_of(context).followed.pop(str(params.uri), None)
        if subscription is not None:
            await self._relay.unsubscribe(subscription)
        return {}

    async def listen(self, context: Any, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Handle `subscriptions/listen`: follow the resources and tasks that it names while it is open."""
        viewer = VIEWER.get()
        if viewer.caller.transport in ("stdio", "memory"):
            # Over HTTP it was counted by `SdkHttp`, where it can be refused with an HTTP status.
            try:
                with self._shares.streams.held(viewer.caller.id):
                    return await self._listen_within(viewer, context, params)
            except QueueOverloaded as error:
                raise MCPError(INTERNAL_ERROR, error.message, error.as_object()) from error
        return await self._listen_within(viewer, context, params)

    async def _listen_within(
        self, viewer: Viewer, context: Any, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        named = parse_task_ids(params)
        relay = self._relay_of(viewer)
        subscribed: list[Subscription] = []
        subscription = _OpenSubscription(viewer, context)
        self._subscriptions.add(subscription)
        try:
            uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
            if len(uris) > FOLLOWED_LIMIT:
                event(_log, logging.WARNING, "resources not followed", uris=len(uris), limit=FOLLOWED_LIMIT)
            for uri in uris[:FOLLOWED_LIMIT]:
                try:
                    subscribed.append(await relay.subscribe(str(uri), Requester(caller=viewer.caller)))
                except (ServerRefused, ToolpostError) as error:
                    # As with an unknown resource: the subscription is acknowledged, and never notified.
                    self._relay.refusals.note(
                        viewer.caller,
                        method="subscriptions/listen",
                        target=str(uri)[:NAME_LIMIT],
                        reason=str(error)[:200],
                    )
            _SUBSCRIPTION.set(subscription)
            with subscription.scope:
                if not named:
                    return await self._listen(subscription.context, params)
                opened = open_task_notifications(self._tasks, named, viewer.caller, subscription.context)
                async with opened as acknowledging:
                    return await self._listen(acknowledging, params)
            return SubscriptionsListenResult.model_validate({"_meta": {SUBSCRIPTION_ID_META_KEY: context.request_id}})
        finally:
            self._subscriptions.discard(subscription)
            with anyio.CancelScope(shield=True):
                await self._unsubscribe_all(subscribed)

    def _relay_of(self, viewer: Viewer) -> Relay:
        return self._relay.select_visible(lambda name, provider: viewer.view.shows_whole(name, tags_of(provider)))

    async def _forward_update(self, notification: Notification) -> None:
        told = msgspec.json.decode(notification.params)
        if not isinstance(own := told.get("uri"), str):
            return
        uri = self._relay.qualify(notification.server, own)
        params = notification.params if uri == own else msgspec.json.encode(told | {"uri": uri})
        await self._bus.publish(ResourceUpdated(uri=uri), lambda viewer: self._concerns(notification, viewer))
        for session in self._sessions_concerned(notification):
            followed = session.followed.get(uri)
            if followed is not None and followed.server == notification.server:
                await self._tell(session, notification.method, params)

    def _sessions_concerned(self, notification: Notification) -> Iterable[SubscribedSession]:
        return [entry for entry in tuple(self._sessions.values()) if self._concerns(notification, entry.viewer)]

    def _concerns(self, notification: Notification, viewer: Viewer) -> bool:
        is_theirs = not notification.key or notification.key == f"{viewer.caller.id}\n{viewer.caller.session or ''}"
        if notification.owner is not None and notification.owner != owner_of(viewer.caller):
            return False
        provider = self._relay.providers.get(notification.server)
        if not is_theirs or (provider is None and notification.tags is None):
            return False
        tags = tags_of(provider) if provider is not None else notification.tags or frozenset()
        # Resources have no name that a pattern could match: only callers who see the whole server are notified.
        shows = viewer.view.shows if notification.method == PROMPTS_CHANGED else viewer.view.shows_whole
        return shows(notification.server, tags)

    def _is_seen(self, servers: Collection[str], view: View) -> bool:
        """Whether a view shows one of these servers. The tags of a removed server are unknown, so they are not compared."""
        return "*" in servers or any(
            view.shows(name, tags_of(provider))
            if (provider := self._relay.providers.get(name))
            else view.source in (None, name)
            for name in servers
        )

    async def _tell(self, session: "SubscribedSession | _OpenSubscription", method: str, params: bytes) -> None:
        try:
            await session.tell(method, params)
        except Exception as error:  # noqa: BLE001 (a client that has disconnected must not keep the others from being notified)
            event(_log, logging.DEBUG, "notification not sent", method=method, reason=str(error))

    async def _leave(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            await self._unsubscribe_all(session.followed.values())

    async def _unsubscribe_all(self, subscriptions: Iterable[Subscription]) -> None:
        for subscription in tuple(subscriptions):
            try:
                with anyio.move_on_after(SEND_LIMIT_S):
                    await self._relay.unsubscribe(subscription)
            except (ServerRefused, ToolpostError, MCPError) as error:
                event(_log, logging.DEBUG, "not unsubscribed", uri=subscription.uri[:200], reason=str(error))


class _ExtensionEvent(mcp_types.Notification[dict[str, Any], str]):
    """A notification of an extension, which the SDK does not know."""

    method: str
    params: dict[str, Any]


class _OpenSubscription:
    """One open `subscriptions/listen`, and the scope that ends it."""

    def __init__(self, viewer: Viewer, context: Any) -> None:
        self.viewer = viewer
        self.scope = anyio.CancelScope()
        meta = (context.params or {}).get("_meta") or {}
        self.takes_extensions = declares_extensions(select_extensions(meta.get(CLIENT_CAPABILITIES)))
        """Whether its client declares extensions."""
        self.context = context
        """The request context to listen with."""
        if self.takes_extensions:
            self.context = ListenContext(context.request_id, AcknowledgingSession(context.session))

    async def tell(self, method: str, params: bytes) -> None:
        """Send an extension's notification; give up after `SEND_LIMIT_S` on a client that does not read."""
        decoded = msgspec.json.decode(params or b"{}")
        fields: JsonObject = decoded if isinstance(decoded, dict) else {}
        meta = fields.get("_meta")
        stamp = {SUBSCRIPTION_ID_META_KEY: self.context.request_id}
        fields["_meta"] = (meta if isinstance(meta, dict) else {}) | stamp
        with anyio.move_on_after(SEND_LIMIT_S):
            await self.context.session.acknowledged.wait()  # which must be sent first
            notification = _ExtensionEvent(method=method, params=fields)
            await self.context.session.send_notification(notification, related_request_id=self.context.request_id)


_SUBSCRIPTION: Final[ContextVar[_OpenSubscription]] = ContextVar("toolpost_subscription")


def _update_viewer(viewer: Viewer, scopes_of: Callable[[Caller], tuple[Scope, ...] | None]) -> Viewer | None:
    if viewer.caller.transport != "http":
        return viewer
    scopes = scopes_of(viewer.caller)
    return None if scopes is None else replace(viewer, view=viewer.view.path.within(scopes).of_owner(viewer.view.owner))


class _FilteredBus:
    """The SDK's subscriptions, each with the context of the request that made it."""

    def __init__(self) -> None:
        self._subscribed: dict[object, tuple[Callable[[ServerEvent], None], _OpenSubscription]] = {}

    async def publish(self, what: ServerEvent, concerns: Callable[[Viewer], bool] = lambda _viewer: True) -> None:
        """Deliver an event to the subscriptions that it concerns."""
        for deliver, subscription in tuple(self._subscribed.values()):
            if concerns(subscription.viewer):
                deliver(what)
        await anyio.lowlevel.checkpoint()

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Add a subscription; called by the SDK while it handles the request that makes it."""
        token = object()
        self._subscribed[token] = (listener, _SUBSCRIPTION.get())

        def unsubscribe() -> None:
            self._subscribed.pop(token, None)

        return unsubscribe
