"""Logins at servers that a person has to renew: those that expire soon and cannot be renewed without one, and expired ones."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from toolpost.base.action_items import ActionItem
from toolpost.credentials.server_tokens import ServerToken

SOON_S: Final = 3 * 86_400.0


def list_expiring(server_tokens: Iterable[ServerToken], now: float) -> list[ActionItem]:
    """Return an item for each of these logins that needs a person by now, or soon."""
    return [item for each in server_tokens if (item := _describe(each, now)) is not None]


def _describe(server_token: ServerToken, now: float) -> ActionItem | None:
    server, owner = server_token.server, server_token.owner
    of = f"The login of {owner} at {server}" if owner else f"The login at {server}"
    expires_at = server_token.expires_at
    grant = server_token.grant
    if server_token.describe() == "required":
        title, text, since = f"{of} is required", "The server refuses calls until a person logs in.", None
    elif expires_at is None or expires_at > now + SOON_S:
        return None
    elif expires_at <= now:
        title, text, since = f"{of} has expired", "", expires_at
    else:
        title, text, since = f"{of} expires in {_describe_time(expires_at - now)}", "", None
    if grant is not None and not text:
        text = grant.problem or "The authorization server gave no token to renew it with."
    return ActionItem(
        kind="login",
        title=title,
        text=text,
        since=since,
        action="Log in again",
        path=f"/login/{quote(server)}",
        command=f"toolpost login {server}",
        is_urgent=expires_at is None or expires_at <= now,
    )


def _describe_time(seconds: float) -> str:
    hours = seconds / 3600
    number, unit = (hours / 24, "day") if hours >= 48 else (hours, "hour") if hours >= 1 else (seconds / 60, "minute")
    return f"{number:.0f} {unit}{'' if round(number) == 1 else 's'}"
