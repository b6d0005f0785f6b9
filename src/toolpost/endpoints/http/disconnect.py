"""Ends long responses whose caller has been removed; to the handler it looks as if the client had disconnected."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from toolpost.endpoints.auth.roster import Admission, Roster
from toolpost.endpoints.http.request import HttpRequest


@asynccontextmanager
async def close_on_removal(request: HttpRequest, roster: Roster, admission: Admission) -> AsyncIterator[None]:
    """End a long response as soon as the token of its request is no longer accepted.

    Only for handlers that wait on `request.receive` while they send, as those do that notice a client leaving.
    """
    removed = anyio.Event()
    receive = request.receive

    async def receive_or_leave() -> Any:
        event: Any = {"type": "http.disconnect"}

        async def wait() -> None:
            nonlocal event
            event = await receive()
            tasks.cancel_scope.cancel()

        if not removed.is_set():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await removed.wait()
                tasks.cancel_scope.cancel()
        return event

    request.receive = receive_or_leave
    with roster.on_removal(admission, removed.set):
        yield
    if removed.is_set():
        # The client is still connected and waits for the end. A response that has ended, or never began, raises here.
        with suppress(Exception):
            await request.send({"type": "http.response.body", "body": b"", "more_body": False})
