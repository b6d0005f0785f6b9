"""What is kept of results: for its owner, for its time, within its size, on both databases."""

import json
from typing import Any

import anyio
import pytest

from tests.hostile.attacks import attack
from tests.parts.results.conftest import open_kept
from toolpost.base.ids import CallerId
from toolpost.contracts.digest import digest_of_bytes
from toolpost.contracts.errors import InvalidArguments, InvalidRequest, NotFound
from toolpost.parts.results import records
from toolpost.parts.results.kept import KeptResults, new_result_id
from toolpost.parts.results.reader import ReadRequest, ResultReader
from toolpost.parts.results.records import CHUNK_BYTES, KeptResult, ResultId
from toolpost.store.scripts import Statement

pytestmark = [pytest.mark.anyio, pytest.mark.every_store]

ADA, BOB = CallerId("ada"), CallerId("bob")
MEMORY = "sqlite::memory:"


def result_of(data: bytes, caller: CallerId = ADA, beside: bytes = b"", **places: tuple[int, int]) -> KeptResult:
    return KeptResult(
        id=new_result_id(),
        caller=caller,
        tool="a__b",
        call_id="1",
        digest=digest_of_bytes(data),
        bytes=len(data),
        total_bytes=len(data) + len(beside),
        places=places or {"/data": (0, len(data))},
    )


async def keep(kept: KeptResults, data: bytes, caller: CallerId = ADA) -> KeptResult:
    new = result_of(data, caller)
    assert await kept.keep(new, data, b"") is not None
    return new


@pytest.mark.parametrize("size", [1, CHUNK_BYTES, CHUNK_BYTES + 1, 9 * CHUNK_BYTES + 7])
async def test_every_byte_is_read_back(url: str, size: int) -> None:
    data = bytes(number * 7 % 251 for number in range(4096)) * (size // 4096 + 1)
    data = data[:size]
    async with open_kept(url) as kept:
        new = result_of(data, beside=b"beside")
        await kept.keep(new, data, b"beside")
    async with open_kept(url) as kept:
        found = await kept.find(new.id, ADA)
        assert await kept.read(found, 0, size) == data
        assert await kept.read(found, size, size + 99) == b"beside"
        for start in (0, 1, size // 2, size - 1, CHUNK_BYTES - 1, CHUNK_BYTES):
            assert await kept.read(found, start, start + 100) == (data + b"beside")[start : start + 100]


@attack("caller", "reads a kept result by its id, or by an invented id", "all of it is NOT_FOUND")
async def test_a_result_is_there_for_its_owner_alone(url: str) -> None:
    async with open_kept(url) as kept:
        new = await keep(kept, b'"secret"')
        for caller, name in ((BOB, new.id), (ADA, ResultId(new.id[:-1])), (ADA, ResultId("' OR 1=1 --"))):
            with pytest.raises(NotFound):
                await kept.find(name, caller)
        assert (await kept.find(new.id, ADA)).digest == new.digest
        assert len(new.id) >= 24
        assert len({new_result_id() for _ in range(1000)}) == 1000


async def test_the_oldest_goes_first_and_only_of_its_caller(url: str) -> None:
    async with open_kept(url, limit_bytes=3 * CHUNK_BYTES) as kept:
        others = await keep(kept, b"x" * CHUNK_BYTES, BOB)
        mine = [await keep(kept, b"x" * CHUNK_BYTES) for _ in range(5)]
        await kept.sweep()
        assert kept.total_bytes == 4 * CHUNK_BYTES
        assert kept.count == 4
        for gone in mine[:2]:
            with pytest.raises(NotFound):
                await kept.find(gone.id, ADA)
        for there, caller in [(others, BOB), *((one, ADA) for one in mine[2:])]:
            assert await kept.read(await kept.find(there.id, caller), 0, 10) == b"x" * 10
        too_large = b"x" * (3 * CHUNK_BYTES + 1)
        assert await kept.keep(result_of(too_large), too_large, b"") is None
        assert (await kept.find(mine[-1].id, ADA)).id == mine[-1].id


async def test_what_has_expired_is_gone_even_while_it_is_read(url: str) -> None:
    async with open_kept(url, keep_s=0.4) as kept:
        new = await keep(kept, b"x" * (5 * CHUNK_BYTES))
        found = await kept.find(new.id, ADA)
        assert await kept.read(found, 0, 10) == b"x" * 10
        await anyio.sleep(0.5)  # longer than it is kept
        with pytest.raises(NotFound):
            await kept.read(found, 0, 10)
        with pytest.raises(NotFound):
            await kept.find(new.id, ADA)
        await kept.sweep()
        assert (kept.count, kept.total_bytes) == (0, 0)
        ((chunks,),) = await kept._scripts.read(_count)
        assert chunks == 0


def _count() -> Any:
    return (yield Statement("SELECT count(*) FROM results_chunks"))


async def test_what_is_incomplete_cannot_be_read(url: str) -> None:
    async with open_kept(url, limit_bytes=3 * CHUNK_BYTES) as kept:
        new = result_of(b"x" * (2 * CHUNK_BYTES))
        chunk = lambda _: b"x" * CHUNK_BYTES  # noqa: E731
        await kept._scripts.run(lambda: records.begin(new, keep_s=60, limit_bytes=3 * CHUNK_BYTES))
        await kept._scripts.run(lambda: records.add_chunks(new.id, range(1), chunk))
    async with open_kept(url, limit_bytes=3 * CHUNK_BYTES) as kept:
        with pytest.raises(NotFound):
            await kept.find(new.id, ADA)
        await keep(kept, b"y" * (2 * CHUNK_BYTES))
        # It had to make room: whoever still writes it is told so, and leaves no chunk behind.
        assert not await kept._scripts.run(lambda: records.add_chunks(new.id, range(1, 2), chunk))
        assert not await kept._scripts.run(lambda: records.complete(new.id))
        assert await kept._scripts.read(_count) == [(2,)]


@pytest.mark.soak
async def test_ten_thousand_results_of_several_gateways_stay_within_their_limits(url: str) -> None:
    limit_bytes = 2_000_000
    async with open_kept(url, limit_bytes=limit_bytes) as one, open_kept(url, limit_bytes=limit_bytes) as two:

        async def fill(kept: KeptResults, caller: CallerId) -> None:
            for _ in range(2_500):
                await keep(kept, b"z" * 1_500, caller)

        async with anyio.create_task_group() as tasks:
            for kept in (one, two):
                for caller in (ADA, BOB):
                    tasks.start_soon(fill, kept, caller)
        await one.sweep()
        assert one.total_bytes <= 2 * limit_bytes
        assert one.count >= 2 * limit_bytes // 1_500 - 2
        ((chunks,),) = await one._scripts.read(_count)
        assert chunks == one.count


# -- reading


async def open_text(kept: KeptResults, text: str, *, ascii_only: bool = False) -> tuple[ResultReader, ResultId]:
    data = json.dumps(text, ensure_ascii=ascii_only).encode()
    return ResultReader(kept), (await keep(kept, data)).id


@pytest.mark.parametrize("ascii_only", [True, False])
async def test_pages_of_any_size_give_the_text_again(ascii_only: bool) -> None:
    text = 'a😀é"\\n\\\\\n\t€\u0000' * 300
    async with open_kept(MEMORY) as kept:
        reader, name = await open_text(kept, text, ascii_only=ascii_only)
        for limit in (100, 101, 103, 107, 1000):
            pages: list[str] = []
            offset: int | None = 0
            while offset is not None:
                page = await reader.read_page(ADA, ReadRequest(id=name, offset=offset, limit=limit))
                pages.append(page["text"])
                offset = page["next_offset"]
            assert "".join(pages) == text


@attack("server", "sends half of a surrogate pair, or bytes that are no UTF-8", "pages go on and are valid text")
async def test_text_that_is_no_text_is_read_to_its_end() -> None:
    async with open_kept(MEMORY) as kept:
        for data in (b'"' + b"\\ud83d" * 100 + b'"', b'"' + b"\xff\xfe" * 100 + b'"', b"[" + b"\x80" * 300 + b"]"):
            name = (await keep(kept, data)).id
            offset: int | None = 0
            count = 0
            while offset is not None:
                page = await ResultReader(kept).read_page(ADA, ReadRequest(id=name, offset=offset, limit=100))
                page["text"].encode()
                assert page["next_offset"] is None or page["next_offset"] > offset
                offset, count = page["next_offset"], count + 1
            assert count < 310


async def test_lines_are_found_across_chunks_and_inside_long_lines() -> None:
    lines = [f"{number} " + "x" * 200 for number in range(8_000)]
    lines[4_321] = "4321 needle \\n not a break"
    text = "\n".join(lines)
    async with open_kept(MEMORY) as kept:
        reader, name = await open_text(kept, text)
        found = await reader.search(ADA, ReadRequest(id=name, grep="needle|^7999 "))
        assert [match["text"][:11] for match in found["matches"]] == ["4321 needle", "7999 xxxxxx"]
        assert found["matches"][0]["text"] == lines[4_321]
        assert found["next_offset"] is None
        page = await reader.read_page(ADA, ReadRequest(id=name, offset=found["matches"][0]["offset"], limit=100))
        assert page["text"].startswith("4321 needle")

        # One line of 3 MB, with matches wherever blocks and parts of lines end.
        long = "y" * 3_000_000
        for at in range(100_000, 2_900_000, 256 * 1024 - 3):
            long = long[:at] + "needle" + long[at + 6 :]
        reader, name = await open_text(kept, long)
        found = await reader.search(ADA, ReadRequest(id=name, grep="need+le", limit=100_000))
        assert len({match["offset"] for match in found["matches"]}) >= 11
        assert all("needle" in match["text"] and len(match["text"]) <= 1000 for match in found["matches"])


async def test_a_pattern_and_a_pointer_that_are_wrong_are_explained() -> None:
    async with open_kept(MEMORY) as kept:
        data = b'{"items": [{"na/me": 1}, {"na\\u002fme": 2}], "text": "x"}'
        name = (await keep(kept, data)).id
        reader = ResultReader(kept)
        with pytest.raises(InvalidArguments, match="not a valid regular expression"):
            await reader.search(ADA, ReadRequest(id=name, grep="(a"))
        with pytest.raises(InvalidArguments, match="no JSON pointer"):
            await reader.read_page(ADA, ReadRequest(id=name, select="items"))
        for pointer, hint in [
            ("/items", "pointers begin with /data"),
            ("/data/item", "it has items, text"),
            ("/data/items/2", "/items has 2 items"),
            ("/data/text/0", "/text is a text"),
        ]:
            with pytest.raises(NotFound) as raised:
                await reader.read_page(ADA, ReadRequest(id=name, select=pointer))
            assert raised.value.hint == hint
        page = await reader.read_page(ADA, ReadRequest(id=name, select="/data/items/*/na~1me"))
        assert page["text"] == "[1,2]"
        dense = b"[" * 2_600_000 + b"]" * 2_600_000
        name = (await keep(kept, dense)).id
        with pytest.raises(InvalidRequest, match="too many values"):
            await reader.read_page(ADA, ReadRequest(id=name, select="/data/0/0"))
