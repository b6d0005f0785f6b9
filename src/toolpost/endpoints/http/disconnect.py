"""Streams that end when their caller may come in no more: to whoever serves one, it is as if the client had left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from toolpost.endpoints.auth.roster import Admission, Roster
from toolpost.endpoints.http.request import HttpRequest


@asynccontextmanager
async def closed_on_removal(request: HttpRequest, roster: Roster, admission: Admission) -> AsyncIterator[None]:
    """Have a long response end as soon as the token that it was asked for with lets its caller in no more.

    Only for what waits on `request.receive` while it sends, as everything does that notices a client leaving.
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
        # The client is still there, and waits for the end. What has ended already, or never begun, cannot be ended so.
        with suppress(Exception):
            await request.send({"type": "http.response.body", "body": b"", "more_body": False})
