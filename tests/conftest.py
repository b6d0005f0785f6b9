"""What every test may ask for."""

import pytest

from tests.plugins import behaviours


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(autouse=True)
def _fresh_behaviours() -> None:
    """Forget what the test tools saw in the test before."""
    for seen in (behaviours.PRESENT, behaviours.MET, behaviours.STARTED):
        seen.clear()
