"""`kill -9` under load: what was answered is on the record, once, and the chain is sound.

The bus has the same with its tasks (`tests/parts/bus/test_torture.py`), one call at a time is in
`tests/upstreams/test_fast_path.py`.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import psutil
import pytest

from tests.hostile.attacks import attack
from tests.hostile.served import Served, call_body, open_gateway, request
from tests.loaded import loaded_toml
from tests.wire.test_visibility import LIBRARY
from toolpost.audit import AuditFilter
from toolpost.store import open_store

pytestmark = pytest.mark.wire

CALLERS = 6
SERVER = f"""
[servers.library]
min_ready = 1
{loaded_toml(LIBRARY)}
"""
_CALL_ID = re.compile(rb'"callId":"([^"]+)"')


def answers(gateway: Served, name: str) -> Iterator[str]:
    """Call again and again on one connection until it breaks, and yield the ids of the calls that were answered."""
    with closing(gateway.connect()) as peer, peer.makefile("rb") as received:
        for number in range(1_000_000):
            try:
                peer.sendall(request(call_body(f"{name}-{number}")))
                length = 0
                while (line := received.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                body = received.read(length)
            except ConnectionError:
                return
            if not length or len(body) < length:
                return
            found = _CALL_ID.search(body)
            assert found is not None, body
            yield found[1].decode()


def kill_under_load(folder: Path, *, kills: int, calls: int) -> list[str]:
    """Kill gateways on one store, each while callers are at it; return the ids of all calls that were answered."""
    answered: list[str] = []
    for turn in range(kills):
        with open_gateway(folder, SERVER) as gateway:
            before = len(answered)

            def collect(name: str, gateway: Served = gateway) -> None:
                for call_id in answers(gateway, name):
                    answered.append(call_id)  # one by one: others count them meanwhile

            threads = [threading.Thread(target=collect, args=(f"{turn}-{number}",)) for number in range(CALLERS)]
            for thread in threads:
                thread.start()
            while len(answered) < before + calls:
                assert any(thread.is_alive() for thread in threads)
                threads[0].join(0.01)
            children = psutil.Process(gateway.process.pid).children(recursive=True)
            assert children, "the server has not been started: nothing could be left"
            gateway.process.kill()
            for thread in threads:
                thread.join(30)
            _, alive = psutil.wait_procs(children, timeout=30)
            assert alive == []
    return answered


def check_record(folder: Path, answered: list[str], *, kills: int) -> None:
    async def read() -> tuple[list[str], bool]:
        async with open_store(f"sqlite:{folder}/.toolpost/toolpost.db") as store:
            ids: list[str] = []
            after = 0
            while page := await store.audit.entries(AuditFilter(), after=after, limit=5000):
                ids += [record.entry.call_id for record in page]
                after = page[-1].seq
            return ids, (await store.audit.verify()).is_intact

    recorded, is_intact = anyio.run(read)
    assert is_intact
    assert set(answered) <= set(recorded), "an answered call is not on the record"
    assert max(Counter(recorded).values()) == 1
    # A call whose answer was on its way when the gateway died is on the record without one: one a caller and kill at most.
    assert len(recorded) - len(answered) <= CALLERS * kills


@attack(
    "operator",
    "kills the gateway with SIGKILL while six clients call tools",
    "every call that was answered has exactly one entry in the audit, the chain verifies, and no process is left",
)
def test_a_kill_under_load(tmp_path: Path) -> None:
    check_record(tmp_path, kill_under_load(tmp_path, kills=1, calls=300), kills=1)


@attack(
    "operator",
    "kills twenty gateways one after another on one store, each under load",
    "the same holds over all of them: one chain, no entry lost, none twice",
)
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_many_kills_under_load(tmp_path: Path) -> None:
    answered = kill_under_load(tmp_path, kills=20, calls=2_000)

    assert len(answered) >= 40_000
    check_record(tmp_path, answered, kills=20)
