"""Where the key is that encrypts stored credentials, by settings and environment."""

import os
from pathlib import Path
from typing import Final

from toolpost.base.state_folder import STATE_FOLDER
from toolpost.contracts.errors import BadConfiguration
from toolpost.credentials.keys import VARIABLE, KeyFile, KeyInKeychain, KeyInMemory, KeyPlace, KeyVariable
from toolpost.settings.model import Config
from toolpost.store.urls import MEMORY, SqliteLocation, parse_store_url

KEY_FILE: Final = "credentials.key"


def key_place_of(config: Config, store_url: str | None = None) -> KeyPlace:
    """Return where the key is; raises `BadConfiguration` for a setting that names no place. Nothing is read yet.

    `store_url` is that of another store than the configured one.
    """
    if os.environ.get(VARIABLE):
        return KeyVariable()
    project = Path(config.project)
    if (given := config.credentials.key) is not None:
        kind, _, place = given.partition(":")
        service, _, name = place.partition("/")
        if kind == "file" and place:
            return KeyFile(project / Path(place).expanduser())
        if kind == "keychain" and service and name:
            return KeyInKeychain(service, name)
        raise BadConfiguration(
            "credentials.key names no place for a key.", hint="write file:PATH or keychain:SERVICE/NAME"
        )
    location = parse_store_url(store_url or config.store_url)
    if not isinstance(location, SqliteLocation):
        return KeyFile(project / STATE_FOLDER / KEY_FILE)
    if location.path == MEMORY:
        return KeyInMemory()
    return KeyFile(Path(location.path).expanduser().parent / KEY_FILE)
