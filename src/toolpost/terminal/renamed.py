"""The names that commands had, and what replaced each: an old name is an error that says the new one."""

from collections.abc import Sequence
from typing import Final

RENAMED: Final = {
    "approvals key": "approvals peers",
    "approvals watch": "approvals list --follow",
    "audit --archive": "audit verify --archive FOLDER",
    "audit --export": "audit export FILE",
    "audit --verify": "audit verify",
    "bus list": "bus status --all",
    "bus log": "bus tasks ID",
    "credentials": "auth",
    "credentials list": "auth list",
    "credentials make-key": "auth key --new",
    "credentials remove": "auth remove",
    "credentials rotate-key": "auth key --rotate",
    "credentials set": "auth set",
    "dev": "serve --reload",
    "logins": "auth sessions",
    "logins list": "auth sessions",
    "logins revoke": "auth sessions --revoke",
    "logout": "auth logout",
    "models stats": "models --stats",
    "passphrase": "auth passphrase",
    "schedules": "chat schedules",
    "schedules stop": "chat schedules --stop ID",
    "search": "tools --find WORDS",
    "token": "auth token",
    "uninstall": "install --remove CLIENT",
}


def find_new_name(words: Sequence[str]) -> str | None:
    """Return what replaced the command that these words begin with; None if it is not an old name."""
    beginnings = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((RENAMED[one] for one in beginnings if one in RENAMED), None)
