"""What every test may ask for."""

from collections.abc import Iterator

import pytest

from tests.plugins import behaviours
from tests.postgres import NoPostgres, Postgres, open_postgres


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that lives as long as the run."""
    try:
        with open_postgres() as server:
            yield server
    except NoPostgres as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _fresh_behaviours() -> None:
    """Forget what the test tools saw in the test before."""
    for seen in (behaviours.PRESENT, behaviours.MET, behaviours.STARTED):
        seen.clear()
