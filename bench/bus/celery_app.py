"""Celery's side: the application that its worker loads, and, run by itself, the one that submits and waits."""

import itertools
import json
import os
import sys
import threading
import time

from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])
app.conf.update(task_serializer="json", result_serializer="json", broker_connection_retry_on_startup=True)

SUBMITTERS = 8


@app.task(name="bench.work")
def work(payload: dict[str, int]) -> str:  # noqa: ARG001 (what the others send too)
    return "fine"


def per_second(seconds: float) -> float:
    """Submit from eight threads, wait for every result, and return how many a second there were."""
    results = []
    began = time.perf_counter()
    count = itertools.count()

    def feed() -> None:
        while time.perf_counter() < began + seconds:
            results.append(work.delay({"n": next(count)}))

    threads = [threading.Thread(target=feed) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert result.get(timeout=60) == "fine"
    return len(results) / (time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps(per_second(float(sys.argv[1]))))
