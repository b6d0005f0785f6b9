"""The id of a project's gateways among those of others that share its store."""

import hashlib
import os
import secrets
from pathlib import Path
from typing import Final, NewType
from urllib.parse import urlsplit

from toolpost.base import STATE_FOLDER, make_folder
from toolpost.settings import Config

GatewayId = NewType("GatewayId", str)

FILE: Final = "gateway-id"


def make_gateway_id(config: Config) -> GatewayId:
    """Return the id of this project's gateways; made at the first time.

    Where it can be kept nowhere, it is another one at each start: then cookies end with the gateway.
    """
    try:
        _create(config)
        return read_gateway_id(config)
    except OSError:
        return GatewayId(secrets.token_hex(16))


def read_gateway_id(config: Config) -> GatewayId:
    """Return the id of this project's gateways; raises `OSError` if there is none that was kept."""
    # A file on this machine is shared by projects of this machine at most; other stores are reached from many machines, on which
    # projects may have the same path.
    kept = "" if _is_on_this_machine(config) else _path(config).read_text(encoding="ascii")
    project = os.fsencode(Path(config.project).resolve())
    return GatewayId(hashlib.sha256(kept.encode() + b"\n" + project).hexdigest())


def port_of(url: str) -> int:
    """Return the port of a gateway's address."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _create(config: Config) -> None:
    path = _path(config)
    if _is_on_this_machine(config) or path.exists():
        return
    make_folder(path.parent)
    temporary = path.with_name(f"{FILE}.{secrets.token_hex(6)}")
    # For its owner alone: who can read the store has the key that signs cookies, and lacks only this.
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(16))
    try:
        # Linked, not renamed: of two gateways that start at the same time, both use the id of the first.
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _is_on_this_machine(config: Config) -> bool:
    return config.store_url.startswith("sqlite:")


def _path(config: Config) -> Path:
    return Path(config.project) / STATE_FOLDER / FILE
