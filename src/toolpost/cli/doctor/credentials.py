"""Checks of stored credentials and their key."""

import os
import stat
from collections.abc import Iterator

from anyio import to_thread

from toolpost.cli.doctor.findings import Diagnosis, note, ok, problem, warning
from toolpost.cli.doctor.output import pluralize
from toolpost.contracts.errors import OperatorError
from toolpost.settings import Config
from toolpost.settings.credentials import key_place_of
from toolpost.store import Store
from toolpost.upstreams.credentials.keys import KeyFile, KeyPlace
from toolpost.upstreams.credentials.login import is_pending_login
from toolpost.upstreams.credentials.vault import Vault


async def check_credentials(config: Config, store: Store) -> list[Diagnosis]:
    """Check that the key decrypts what is stored, that only its owner can read it, and that each value belongs to a server."""
    try:
        place = key_place_of(config)
        await to_thread.run_sync(place.read)
        stored = [one for one in await Vault(store, place).list() if not is_pending_login(one.name)]
    except OperatorError as error:
        return [problem("credentials", error)]
    if not stored:
        return []
    findings = list(_check_key_file(place))
    unreadable = [one for one in stored if not one.is_readable]
    if unreadable:
        names = ", ".join(sorted({one.server for one in unreadable}))
        findings.append(
            problem(
                "credentials",
                f"{pluralize(len(unreadable), 'credential')} cannot be decrypted with the key in {place.shown}: of {names}",
                hint="use the key with which they were stored, or set them again",
            )
        )
    else:
        findings.append(
            ok("credentials", f"{pluralize(len(stored), 'credential')}, encrypted with the key in {place.shown}")
        )
    if unknown := sorted({one.server for one in stored} - set(config.servers)):
        findings.append(
            note("credentials", f"there are credentials for servers that are not configured: {', '.join(unknown)}")
        )
    return findings


def _check_key_file(place: KeyPlace) -> Iterator[Diagnosis]:
    if os.name != "posix" or not isinstance(place, KeyFile):
        return
    mode = stat.S_IMODE(place.path.stat().st_mode) if place.path.exists() else 0o600
    if mode & 0o077:
        yield warning(
            "credentials",
            f"the key in {place.shown} can be read by other users of this machine",
            hint=f"chmod 600 {place.shown}",
        )
