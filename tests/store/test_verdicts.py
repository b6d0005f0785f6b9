"""What was found out about definitions, in every kind of store."""

import pytest

from toolpost.store import open_store

pytestmark = pytest.mark.anyio


async def test_verdicts_are_recalled_by_the_rules_that_made_them(url: str) -> None:
    async with open_store(url) as store:
        await store.verdicts.remember("findings", "git", "first", "{}")
        await store.verdicts.remember("findings", "git", "second", '{"nul \\u0000": "🦉"}')
        await store.verdicts.remember("schemas", "git", "first", "[]")
    async with open_store(url) as store:
        assert await store.verdicts.recall("findings", "git", "second") == '{"nul \\u0000": "🦉"}'
        assert await store.verdicts.recall("findings", "git", "first") is None
        assert await store.verdicts.recall("schemas", "git", "first") == "[]"
        assert await store.verdicts.recall("findings", "other", "second") is None
