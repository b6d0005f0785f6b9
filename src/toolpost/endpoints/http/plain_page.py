"""Pages without scripts, for logins: in the style of the console, which need not be there.

Their policy permits one style sheet, by a nonce, and nothing else. Makers of a body escape every text in it.
"""

import secrets
from html import escape
from pathlib import Path
from typing import Final

_STYLE: Final = Path(__file__).with_suffix(".css").read_text()


class PlainPage:
    """A page and its headers."""

    def __init__(self, title: str, body: str, *, status: int = 200, form_action: str = "'none'") -> None:
        """`form_action` are the sources to which its forms may be sent, those of redirects included."""
        nonce = secrets.token_urlsafe(16)
        self.status = status
        self.body = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            f'<meta name="viewport" content="width=device-width"><style nonce="{nonce}">{_STYLE}</style></head>'
            f'<body><main><p class="brand">Toolpost</p><h1>{escape(title)}</h1>{body}</main></body></html>'
        ).encode()
        policy = (
            f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; frame-ancestors 'none'; "
            f"form-action {form_action}"
        )
        # A form says where it comes from by its Origin, which browsers leave out together with the referrer.
        referrer = b"no-referrer" if form_action == "'none'" else b"same-origin"
        self.headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", b"%d" % len(self.body)),
            (b"content-security-policy", policy.encode()),
            (b"x-frame-options", b"DENY"),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", referrer),
            (b"cache-control", b"no-store"),
        ]
