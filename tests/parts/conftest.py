"""What the tests of parts share: the stores that a part runs on."""

from pathlib import Path

import pytest

from tests.store.conftest import url_of


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new place in each kind of store."""
    return url_of(request.param, request, tmp_path / "store.db")
