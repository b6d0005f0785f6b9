"""Credentials are kept encrypted, compared before they are replaced, and renewed by one gateway at a time."""

import os
import stat
from pathlib import Path

import anyio
import pytest
from cryptography.fernet import Fernet

from tests.postgres import Postgres
from tests.store.conftest import url_of
from toolpost.contracts.errors import BadConfiguration, CredentialUnreadable
from toolpost.credentials import vault as vault_module
from toolpost.credentials.keys import VARIABLE, KeyFile, KeyInKeychain, KeyVariable
from toolpost.credentials.vault import TOPIC, Vault
from toolpost.store import open_store
from toolpost.store.copying import copy_store
from toolpost.store.credentials import CHECK, CredentialRow, Written
from toolpost.store.scripts import Script, Statement

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]
SECRET = b"tp-canary-8f3a9c01b2d4"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path / "store.db")


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / ".toolpost" / "credentials.key")


def statement(sql: str) -> Script[None]:
    yield Statement(sql)


async def test_values_are_kept_by_server_owner_and_name(url: str, keys: KeyFile) -> None:
    async with open_store(url) as store:
        vault = Vault(store, keys)
        assert await vault.get("github", "ann", "TOKEN") is None
        assert await vault.list() == []
        assert not keys.path.exists()  # reading makes no key
        await vault.put("github", "ann", "TOKEN", SECRET)
        await vault.put("github", "", "TOKEN", b"shared")
        await vault.put("github", "ann", "other", b"\0\xff")
    async with open_store(url) as store:
        vault = Vault(store, keys)
        assert await vault.get("github", "ann", "TOKEN") == SECRET
        assert await vault.get("github", "", "TOKEN") == b"shared"
        assert await vault.get("github", "bob", "TOKEN") is None
        assert await vault.get("github", "ann", "other") == b"\0\xff"
        listed = [(one.server, one.owner, one.name, one.is_readable) for one in await vault.list()]
        assert listed == [
            ("github", "", "TOKEN", True),
            ("github", "ann", "TOKEN", True),
            ("github", "ann", "other", True),
        ]
        assert await vault.remove("github", "ann", "TOKEN") == 1
        assert await vault.remove("github", "ann", "TOKEN") == 0
        assert await vault.get("github", "ann", "TOKEN") is None
        assert await vault.remove("github", "ann") == 1
        assert await vault.get("github", "", "TOKEN") == b"shared"


async def test_the_key_is_made_once_and_for_its_owner_alone(url: str, keys: KeyFile) -> None:
    async with open_store(url) as one, open_store(url) as other:
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(Vault((one, other)[number % 2], KeyFile(keys.path)).put, "s", f"c{number}", "K", b"v")
        found = await Vault(one, keys).list()
    assert [entry.is_readable for entry in found] == [True] * 10
    assert len(keys.read()) == 1
    if os.name == "posix":
        assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert sorted(path.name for path in keys.path.parent.iterdir()) == [".gitignore", "credentials.key"]


async def test_a_value_is_replaced_only_if_it_is_the_expected_one(url: str, keys: KeyFile) -> None:
    async with open_store(url) as one, open_store(url) as other:
        vault, second = Vault(one, keys), Vault(other, keys)
        assert await vault.put("s", "ann", "K", b"1", expect=None)
        assert not await second.put("s", "ann", "K", b"2", expect=None)
        assert not await second.put("s", "ann", "K", b"2", expect=b"0")
        won = []

        async def swap(vault: Vault, value: bytes) -> None:
            if await vault.put("s", "ann", "K", value, expect=b"1"):
                won.append(value)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(swap, (vault, second)[number % 2], b"new-%d" % number)
        assert len(won) == 1
        assert await vault.get("s", "ann", "K") == won[0]


async def test_one_renews_at_a_time_and_a_killed_one_is_forgotten(url: str, keys: KeyFile) -> None:
    async with open_store(url) as one, open_store(url) as other:
        first, second = Vault(one, keys), Vault(other, keys)
        async with first.lease("s", "ann", "oauth", seconds=30) as has_lease:
            assert has_lease
            async with second.lease("s", "ann", "oauth", seconds=30) as also:
                assert not also
            async with first.lease("s", "ann", "oauth", seconds=30) as again:
                assert not again  # another task of the same gateway
            async with second.lease("s", "bob", "oauth", seconds=30) as another:
                assert another
        async with second.lease("s", "ann", "oauth", seconds=30) as has_lease:
            assert has_lease
        # A holder that was killed never gives it back.
        assert await one.credentials.lease("s", "cyd", "oauth", holder="killed", seconds=1)
        async with second.lease("s", "cyd", "oauth", seconds=30) as early:
            assert not early
        await anyio.sleep(1.1)  # the lease has expired
        async with second.lease("s", "cyd", "oauth", seconds=30) as later:
            assert later
            # The late one ends nothing that it does not have.
            await one.credentials.end_lease("s", "cyd", "oauth", holder="killed")
            async with first.lease("s", "cyd", "oauth", seconds=30) as still:
                assert not still


async def test_a_row_moved_to_another_caller_is_refused(url: str, keys: KeyFile) -> None:
    async with open_store(url) as store:
        vault = Vault(store, keys)
        await vault.put("s", "ann", "K", SECRET)
        await store.scripts.run(lambda: statement("UPDATE credentials SET owner = 'bob' WHERE owner = 'ann'"))
        with pytest.raises(CredentialUnreadable, match="belongs to another caller"):
            await vault.get("s", "bob", "K")
        assert [one.is_readable for one in await vault.list()] == [False]


async def test_another_machine_needs_the_same_key(url: str, keys: KeyFile, tmp_path: Path) -> None:
    async with open_store(url) as store:
        await Vault(store, keys).put("s", "ann", "K", SECRET)
        without = Vault(store, KeyFile(tmp_path / "elsewhere" / "credentials.key"))
        with pytest.raises(CredentialUnreadable, match="there is no key in"):
            await without.get("s", "ann", "K")
        with pytest.raises(BadConfiguration, match="key that is not here"):
            await without.put("s", "bob", "K", b"x")
        assert not (tmp_path / "elsewhere").exists()
        wrong = Vault(store, KeyVariable({VARIABLE: Fernet.generate_key().decode()}))
        with pytest.raises(BadConfiguration, match="encrypted with another key"):
            await wrong.put("s", "bob", "K", b"x")
        with pytest.raises(CredentialUnreadable, match="its key is another one"):
            await wrong.get("s", "ann", "K")
        same = Vault(store, KeyVariable({VARIABLE: keys.path.read_text()}))
        assert await same.get("s", "ann", "K") == SECRET


async def test_after_a_rotation_everything_is_readable_also_where_the_old_key_was_in_use(
    url: str, keys: KeyFile
) -> None:
    async with open_store(url) as one, open_store(url) as other:
        vault, running = Vault(one, keys), Vault(other, KeyFile(keys.path))
        for number in range(20):
            await vault.put("s", f"c{number}", "K", b"v%d" % number)
        assert await running.get("s", "c0", "K") == b"v0"  # has read the old key
        times = [entry.changed_at for entry in await vault.list()]
        (old,) = keys.read()
        assert await vault.rotate() == 20
        assert len(keys.read()) == 2
        assert await running.get("s", "c1", "K") == b"v1"
        assert await running.put("s", "c2", "K", b"new", expect=b"v2")
        await vault.rotate()
        await vault.rotate()
        assert old not in keys.read()
        late = Vault(other, KeyFile(keys.path))
        assert [await late.get("s", f"c{n}", "K") for n in range(20)] == [
            b"v0",
            b"v1",
            b"new",
            *(b"v%d" % n for n in range(3, 20)),
        ]
        assert [entry.changed_at for n, entry in enumerate(await vault.list()) if entry.owner != "c2"] == pytest.approx(
            [at for n, at in enumerate(times) if n != [e.owner for e in await vault.list()].index("c2")], abs=0.5
        )
        lone = Vault(one, KeyVariable({VARIABLE: old}))
        with pytest.raises(CredentialUnreadable):
            await lone.get("s", "c0", "K")


async def test_values_written_while_the_key_is_rotated_are_not_lost(url: str, keys: KeyFile) -> None:
    async with open_store(url) as one, open_store(url) as other:
        vault, running = Vault(one, keys), Vault(other, KeyFile(keys.path))
        await vault.put("s", "ann", "K", b"0")
        done = anyio.Event()

        async def write() -> None:
            for number in range(60):
                assert await running.put("s", "ann", "K", b"%d" % (number + 1), expect=b"%d" % number)
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            while not done.is_set():
                await vault.rotate()
        assert await Vault(one, KeyFile(keys.path)).get("s", "ann", "K") == b"60"


async def test_a_long_rotation_stays_the_only_one(url: str, keys: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault_module, "_ROTATION_S", 2)
    async with open_store(url) as one, open_store(url) as other:
        vault, second = Vault(one, keys), Vault(other, KeyFile(keys.path))
        for number in range(8):
            await vault.put("s", f"c{number}", "K", SECRET)
        real, refused = one.credentials.encrypt_again, []

        async def encrypt_slowly(row: CredentialRow, new: bytes) -> None:
            await anyio.sleep(0.3)  # it is slow on purpose
            with pytest.raises(BadConfiguration, match="being rotated"):
                await second.rotate()
            refused.append(row)
            await real(row, new)

        monkeypatch.setattr(one.credentials, "encrypt_again", encrypt_slowly)
        assert await vault.rotate() == 8

    assert len(refused) == 9


async def test_a_rotation_removes_no_key_of_a_later_one(
    url: str, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(url) as store:
        vault = Vault(store, keys)
        await vault.put("s", "ann", "K", SECRET)
        await vault.rotate()
        real, later = store.credentials.encrypt_again, Fernet.generate_key().decode()

        async def encrypt_late(row: CredentialRow, new: bytes) -> None:
            await real(row, new)
            if row.server:
                keys.replace([later, *keys.read()])

        monkeypatch.setattr(store.credentials, "encrypt_again", encrypt_late)
        await vault.rotate()
        assert keys.read()[0] == later
        assert len(keys.read()) == 4
        assert await Vault(store, KeyFile(keys.path)).get("s", "ann", "K") == SECRET


def test_the_name_of_the_key_file_is_durable(keys: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real = [], os.fsync

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            synced.append((status.st_ino, keys.path.read_text()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    keys.create()
    first = keys.path.read_text()
    keys.replace([Fernet.generate_key().decode()])

    folder = keys.path.parent.stat().st_ino
    assert synced == [(folder, first), (folder, keys.path.read_text())]


async def test_nothing_is_written_with_a_key_that_was_rotated_in_the_meantime(url: str, keys: KeyFile) -> None:
    async with open_store(url) as store:
        vault = Vault(store, keys)
        await vault.put("s", "ann", "K", b"1")
        check = await store.credentials.find(*CHECK)
        assert check is not None
        assert await store.credentials.write(("s", "bob", "K"), b"x", check=check) is Written.DONE
        await vault.remove("s", "bob")
        await vault.rotate()
        assert await store.credentials.write(("s", "bob", "K"), b"x", check=check) is Written.OTHER_KEY
        assert await vault.get("s", "bob", "K") is None
        # Only encrypted anew, which is not a change of the value.
        assert await vault.put("s", "ann", "K", b"2", expect=b"1")


async def test_a_variable_is_rotated_by_putting_the_new_key_first(url: str) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    async with open_store(url) as store:
        vault = Vault(store, KeyVariable({VARIABLE: old}))
        await vault.put("s", "ann", "K", SECRET)
        with pytest.raises(BadConfiguration, match="cannot change"):
            await vault.rotate()
        assert await Vault(store, KeyVariable({VARIABLE: f"{new} {old}"})).rotate() == 1
        assert await Vault(store, KeyVariable({VARIABLE: new})).get("s", "ann", "K") == SECRET
        with pytest.raises(BadConfiguration, match="not a key for credentials") as told:
            await Vault(store, KeyVariable({VARIABLE: new[:-3]})).put("s", "ann", "K", SECRET)
        assert new[:-3] not in str(told.value)


async def test_changes_are_announced_to_every_gateway(url: str, keys: KeyFile) -> None:
    async with open_store(url) as one, open_store(url) as other, other.wakeups.open_listener(TOPIC) as listener:
        vault = Vault(one, keys)
        await vault.put("s", "ann", "K", b"1")
        with anyio.fail_after(30):
            await listener.wait()
        await vault.remove("s", "ann")
        with anyio.fail_after(30):
            await listener.wait()


async def test_a_copied_store_has_its_credentials(keys: KeyFile, tmp_path: Path, postgres: Postgres) -> None:
    async with open_store(f"sqlite:{tmp_path / 'a.db'}") as source, open_store(postgres.new_url()) as target:
        await Vault(source, keys).put("s", "ann", "K", SECRET)
        copied = await copy_store(source, target, progress=lambda *_: None)
        assert copied.rows["credentials"] == 2  # with the key check
        assert await Vault(target, keys).get("s", "ann", "K") == SECRET
        await Vault(target, keys).put("s", "bob", "K", b"more")


async def test_values_are_not_in_the_files_of_the_database(tmp_path: Path, keys: KeyFile) -> None:
    async with open_store(f"sqlite:{tmp_path / 'store.db'}") as store:
        vault = Vault(store, keys)
        await vault.put("s", "ann", "K", SECRET)
        await vault.put("s", "ann", "K", SECRET + b"-2", expect=SECRET)
        await store.audit.newest()
    texts = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert "store.db" in texts
    assert [name for name, text in texts.items() if SECRET in text] == []


@pytest.mark.usefixtures("keychain")
async def test_the_key_can_be_in_the_keychain(url: str) -> None:
    async with open_store(url) as store:
        await Vault(store, KeyInKeychain("toolpost", "project")).put("s", "ann", "K", SECRET)
        assert await Vault(store, KeyInKeychain("toolpost", "project")).rotate() == 1
        assert await Vault(store, KeyInKeychain("toolpost", "project")).get("s", "ann", "K") == SECRET
        with pytest.raises(CredentialUnreadable):
            await Vault(store, KeyInKeychain("toolpost", "another")).get("s", "ann", "K")
