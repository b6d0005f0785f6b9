"""What the tests of approvals share: the stores they are held to."""

from pathlib import Path

import pytest

from tests.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new place in each kind of store."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:{tmp_path / 'store.db'}"
