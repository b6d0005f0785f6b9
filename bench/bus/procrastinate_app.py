"""procrastinate's side: eight jobs at a time, deferred by eight, in one process."""

import asyncio
import itertools
import time

from procrastinate import App, PsycopgConnector, exceptions


def _app(uri: str) -> App:
    return App(connector=PsycopgConnector(conninfo=uri, min_size=8, max_size=16))


async def set_up(uri: str) -> None:
    """Make the tables, once."""
    app = _app(uri)
    async with app.open_async():
        try:
            await app.schema_manager.apply_schema_async()
        except exceptions.ConnectorException:
            if not await app.check_connection_async():
                raise


async def per_second(uri: str, seconds: float, *, workers: int) -> float:
    """Return how many jobs a second are deferred and done."""
    app = _app(uri)
    done = 0
    room = asyncio.Semaphore(64)

    @app.task(queue="bench", name="work")
    async def work(n: int) -> str:  # noqa: ARG001 (what the others send too)
        nonlocal done
        done += 1
        room.release()
        return "fine"

    async with app.open_async():
        worker = asyncio.ensure_future(
            app.run_worker_async(queues=["bench"], concurrency=workers, install_signal_handlers=False, wait=True)
        )
        await asyncio.sleep(0.3)
        began = time.perf_counter()
        numbers = itertools.count()

        async def feed() -> None:
            while time.perf_counter() < began + seconds:
                await room.acquire()
                await work.defer_async(n=next(numbers))

        await asyncio.gather(*(feed() for _ in range(workers)))
        submitted = next(numbers)
        while done < submitted:  # noqa: ASYNC110 (a measurement waits without a part in it)
            await asyncio.sleep(0.002)
        took_s = time.perf_counter() - began
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return submitted / took_s
