"""Ends long responses whose caller has been removed; to the handler it looks as if the client had disconnected."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio

from toolpost.endpoints.auth.access import parse_bearer
from toolpost.endpoints.auth.roster import Admission, Roster
from toolpost.endpoints.http.request import HttpRequest

_SHORTEST_S: Final = 0.5
"""Between two verifications of the token of a response, however short they are valid."""


@asynccontextmanager
async def close_on_removal(
    request: HttpRequest,
    roster: Roster,
    admission: Admission,
    find_person: Callable[[HttpRequest], Awaitable[Admission | None]] | None = None,
) -> AsyncIterator[None]:
    """End a long response as soon as the token of its request is no longer accepted, or the session of its person is over.

    Only for handlers that wait on `request.receive` while they send, as those do that notice a client leaving.
    """
    removed = anyio.Event()
    receive, token = request.receive, parse_bearer(request.headers)

    async def receive_or_leave() -> Any:
        event: Any = {"type": "http.disconnect"}

        async def wait() -> None:
            nonlocal event
            event = await receive()
            tasks.cancel_scope.cancel()

        if not removed.is_set():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                tasks.start_soon(verify_again)
                await removed.wait()
                tasks.cancel_scope.cancel()
        return event

    async def verify_again() -> None:
        # A token may expire, or be revoked where this gateway is not told, while nothing else asks for it.
        nonlocal admission
        while admission.until is not None:
            await anyio.sleep(max(_SHORTEST_S, admission.until - time.time()))
            renewed = await renew()
            if renewed is None:
                removed.set()
                return
            admission = renewed

    async def renew() -> Admission | None:
        if admission.person is not None and find_person is not None:
            return await find_person(request)
        return await roster.renew(token, admission) if token is not None else None

    request.receive = receive_or_leave
    with roster.on_removal(admission, removed.set):
        yield
    if removed.is_set():
        # The client is still connected and waits for the end. A response that has ended, or never began, raises here.
        with suppress(Exception):
            await request.send({"type": "http.response.body", "body": b"", "more_body": False})
