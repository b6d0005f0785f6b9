"""The HTML of the login pages: no script, nothing from elsewhere, every text escaped."""

import html
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from toolpost.endpoints.http import PlainPage
from toolpost.parts.authorization_server.scopes import is_read_only

_OWN: Final = "'self'"
FIRST_TOOLS: Final = 12
"""Tools that are in sight at once."""

TOOLS_SHOWN: Final = 200


def sign_in_page(
    *, client: str, request: str, form: str, problem: str | None, has_callers: bool, provider: str | None
) -> PlainPage:
    """Ask who the person is; `problem` is what was wrong before."""
    alert = f'<p class="problem" role="alert">{_(problem)}</p>' if problem else ""
    ways = ""
    if has_callers:
        ways += (
            f'<form method="post" action="/authorize/consent">{_hidden(request, form)}'
            '<label>Name<input name="name" autocomplete="username" required autofocus></label>'
            '<label>Passphrase or token<input name="passphrase" type="password" autocomplete="current-password" required>'
            '</label><div class="buttons"><button class="primary" name="action" value="sign-in">Log in</button></div></form>'
        )
    if provider is not None:
        host = urlsplit(provider).hostname or provider
        link = f'<a class="button" href="/authorize/provider?request={_(request)}">Log in with {_(host)}</a>'
        ways += f'<p class="buttons">{link}</p>'
    return PlainPage(
        "Log in",
        f"<p><strong><bdi>{_(client)}</bdi></strong> wants to use tools of this gateway.</p>{alert}{ways}",
        form_action=_OWN,
    )


def consent_page(
    *,
    client: str,
    client_id: str | None,
    redirect_uri: str,
    scopes: Sequence[str],
    resource: str,
    caller: str,
    tools: Sequence[str],
    readable: Sequence[str],
    request: str,
    form: str,
) -> PlainPage:
    """Ask whether the client may use the person's tools.

    `client_id` is shown where it is a URL. `readable` are the read-only tools, which the person can allow alone.
    """
    reading = set(readable)
    shown = [
        f"<li><code>{_(name)}</code>{' (read-only)' if name in reading else ''}</li>" for name in tools[:TOOLS_SHOWN]
    ]
    if len(tools) > TOOLS_SHOWN:
        shown.append(f"<li>and {len(tools) - TOOLS_SHOWN} more</li>")
    listed = f"<ul>{''.join(shown[:FIRST_TOOLS])}</ul>"
    if len(shown) > FIRST_TOOLS:
        more = len(tools) - FIRST_TOOLS
        listed += f"<details><summary>and {more} more</summary><ul>{''.join(shown[FIRST_TOOLS:])}</ul></details>"
    kind = "read-only " if is_read_only(scopes) else ""
    only_reads = ""
    if readable and not is_read_only(scopes):
        only_reads = '<button name="action" value="allow-read">Allow only the read-only tools</button>'
    about = (
        f" (<code>{_(client_id)}</code>)" if client_id is not None else ", which has registered itself under this name,"
    )
    body = (
        f"<p><strong><bdi>{_(client)}</bdi></strong>{about} wants to call tools as <strong>{_(caller)}</strong> at "
        f"<code>{_(resource)}</code>.</p>"
        f"<p>The answer is sent to <code>{_(_target(redirect_uri))}</code>. "
        "Go on only if you have just started to connect this application.</p>"
        f"<p>Scopes: {', '.join(f'<code>{_(scope)}</code>' for scope in scopes)}</p>"
        f"<p>It may use {len(tools)} {kind}{'tool' if len(tools) == 1 else 'tools'}, and those that are added for you"
        " later:</p>"
        f"{listed}"
        f'<form method="post" action="/authorize/consent">{_hidden(request, form)}'
        '<div class="buttons"><button class="primary" name="action" value="allow">Allow</button>'
        f"{only_reads}"
        '<button class="danger" name="action" value="deny">Deny</button></div></form>'
    )
    return PlainPage("Allow access?", body, form_action=f"'self'{_source_of(redirect_uri)}")


def problem_page(message: str, *, status: int = 400) -> PlainPage:
    """Say what is wrong."""
    return PlainPage(
        "This login cannot go on", f'<p class="problem" role="alert">{_(message)}</p>', status=status, form_action=_OWN
    )


def _(text: str) -> str:
    return html.escape(text, quote=True)


def _hidden(request: str, form: str) -> str:
    return (
        f'<input type="hidden" name="request" value="{_(request)}"><input type="hidden" name="form" value="{_(form)}">'
    )


def _target(uri: str) -> str:
    """Show where a redirect leads: the host, or the scheme of an application."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _source_of(uri: str) -> str:
    """Write a source of a policy: an origin, or the scheme of an application."""
    source = _target(uri)
    # A host that would end the policy is not a host.
    return f" {source}" if all(char.isalnum() or char in ":/.-_[]+" for char in source) else ""
