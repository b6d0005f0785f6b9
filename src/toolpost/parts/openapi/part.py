"""APIs as a part: its section, a plugin for each API, its import and its checks."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.parts.openapi.settings import APIS, enabled_apis

if TYPE_CHECKING:
    from toolpost.parts import Host


@asynccontextmanager
async def open_apis(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Bring a plugin for each API. One whose document cannot be read is named as failed, and the others are served."""
    apis = enabled_apis(host.config)
    # Where APIs can be added later, all of it is loaded; a single command needs none of it.
    if not host.wants_plugin("openapi", is_needed=True) or (host.for_one_command and not apis):
        yield ()
        return
    from toolpost.parts import Background, LoginTargets, Reload
    from toolpost.parts.openapi.served import ServedApis, check_names

    check_names(host.config, apis)
    async with host.open_credentials() as credentials:
        served = ServedApis(host, credentials)
        try:
            yield [
                *await served.open_first(apis),
                LoginTargets(lambda: served.logins),
                Reload(APIS.name, served.prepare_reload),
                *([] if host.for_one_command else [Background(served.open_running)]),
            ]
        finally:
            await served.aclose()
