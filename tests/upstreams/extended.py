"""Gateways in front of a server with extensions, and clients that declare some."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.upstreams.behind import SERVERS
from tests.upstreams.wires import Wire, duplex_wire, http_wire
from tests.ways import IN_MEMORY
from toolpost.app import App, open_app, open_http
from toolpost.settings import Config
from toolpost.upstreams.spec import ServerSpec

CLIENT = {"extensions": {"com.example/vendor": {"v": 2}}, "experimental": {"x": {}}}
VENDOR = {"extensions": {"com.example/vendor": {"types": ["a"]}}}
META = "dev.toolpost/meta"


def extending(tmp_path: Path, name: str = "up", era: str = "handshake", **options: Any) -> ServerSpec:
    spec = options.pop("spec", {})
    said = {"name": name, "capabilities": VENDOR, **options}
    options_path = tmp_path / f"{name}.json"
    options_path.write_text(json.dumps(said))
    command = (sys.executable, "-S", "-E", str(SERVERS / "extending.py"), era, str(tmp_path / name), str(options_path))
    return ServerSpec(name=name, command=command, **spec)


@asynccontextmanager
async def wire_to(
    transport: str,
    *specs: ServerSpec,
    is_stateless: bool,
    capabilities: dict[str, Any] = CLIENT,
    config: Config = IN_MEMORY,
) -> AsyncIterator[tuple[App, Wire]]:
    async with open_app(config, bundled=False, servers=specs) as app:
        if transport == "duplex":
            async with duplex_wire(app, capabilities, is_stateless=is_stateless) as wire:
                yield app, wire
        else:
            async with open_http(app) as url, http_wire(url, capabilities, is_stateless=is_stateless) as wire:
                yield app, wire
