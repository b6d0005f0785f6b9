"""The HTML of the login pages: no script, nothing from elsewhere, every text escaped."""

import html
import secrets
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from toolpost.parts.authorization_server.scopes import is_read_only

_STYLE: Final = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:34rem;margin:3rem auto;padding:0 1rem}
h1{font-size:1.3rem}
label{display:block;margin:.8rem 0}
input{display:block;width:100%;box-sizing:border-box;font:inherit;padding:.4rem}
button{font:inherit;padding:.4rem 1.2rem;margin:1rem .5rem 0 0}
code,li{overflow-wrap:anywhere}
ul{max-height:14rem;overflow:auto}
.problem{border-left:.3rem solid #c33;padding-left:.6rem}
"""
TOOLS_SHOWN: Final = 200


class LoginPage:
    """A page and its headers."""

    def __init__(self, title: str, body: str, *, status: int = 200, leads_to: str | None = None) -> None:
        """`leads_to` is the address that a form of the page redirects to, which browsers hold to `form-action` as well."""
        nonce = secrets.token_urlsafe(16)
        self.status = status
        self.body = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_(title)}</title>'
            f'<meta name="viewport" content="width=device-width"><style nonce="{nonce}">{_STYLE}</style></head>'
            f"<body><main><h1>{_(title)}</h1>{body}</main></body></html>"
        ).encode()
        policy = (
            f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; frame-ancestors 'none'; "
            f"form-action 'self'{_source_of(leads_to)}"
        )
        self.headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", b"%d" % len(self.body)),
            (b"content-security-policy", policy.encode()),
            (b"x-frame-options", b"DENY"),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]


def sign_in_page(
    *, client: str, request: str, form: str, problem: str | None, has_callers: bool, provider: str | None
) -> LoginPage:
    """Ask who the person is; `problem` is what was wrong before."""
    alert = f'<p class="problem" role="alert">{_(problem)}</p>' if problem else ""
    ways = ""
    if has_callers:
        ways += (
            f'<form method="post" action="/authorize/consent">{_hidden(request, form)}'
            '<label>Name<input name="name" autocomplete="username" required autofocus></label>'
            '<label>Passphrase or token<input name="passphrase" type="password" autocomplete="current-password" required>'
            '</label><button name="action" value="sign-in">Log in</button></form>'
        )
    if provider is not None:
        host = urlsplit(provider).hostname or provider
        ways += f'<p><a href="/authorize/provider?request={_(request)}">Log in with {_(host)}</a></p>'
    return LoginPage(
        "Log in", f"<p><strong><bdi>{_(client)}</bdi></strong> wants to use tools of this gateway.</p>{alert}{ways}"
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
) -> LoginPage:
    """Ask whether the client may use the person's tools.

    `client_id` is shown where it is a URL. `readable` are the read-only tools, which the person can allow alone.
    """
    reading = set(readable)
    shown = "".join(
        f"<li><code>{_(name)}</code>{' (read-only)' if name in reading else ''}</li>" for name in tools[:TOOLS_SHOWN]
    )
    if len(tools) > TOOLS_SHOWN:
        shown += f"<li>and {len(tools) - TOOLS_SHOWN} more</li>"
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
        f"<ul>{shown}</ul>"
        f'<form method="post" action="/authorize/consent">{_hidden(request, form)}'
        '<button name="action" value="allow">Allow</button>'
        f"{only_reads}"
        '<button name="action" value="deny">Deny</button></form>'
    )
    return LoginPage("Allow access?", body, leads_to=redirect_uri)


def problem_page(message: str, *, status: int = 400) -> LoginPage:
    """Say what is wrong."""
    return LoginPage("This login cannot go on", f'<p class="problem" role="alert">{_(message)}</p>', status=status)


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


def _source_of(uri: str | None) -> str:
    """Write a source of a policy: an origin, or the scheme of an application."""
    if uri is None:
        return ""
    source = _target(uri)
    # A host that would end the policy is not a host.
    return f" {source}" if all(char.isalnum() or char in ":/.-_[]+" for char in source) else ""
