"""The settings of an OAuth 2.1 resource server, its challenge and its metadata. `oauth.py`, loaded only where needed,
verifies tokens by them.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from toolpost.base.ids import JsonObject
from toolpost.endpoints.http.paths import METADATA_PATH


@dataclass(frozen=True, kw_only=True)
class OAuthRules:
    """One authorization server, and what its tokens must contain to be accepted here."""

    issuer: str
    resource: str
    """The URL of this server as clients reach it."""
    audiences: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    jwks_url: str | None = None
    jwks_file: Path | None = None
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "EdDSA")

    @property
    def metadata_url(self) -> str:
        """Where the metadata of this resource is, as RFC 9728 forms it."""
        parts = urlsplit(self.resource)
        path = "" if parts.path == "/" else parts.path
        return urlunsplit((parts.scheme, parts.netloc, f"{METADATA_PATH}{path}", parts.query, ""))

    def metadata(self) -> JsonObject:
        """Return the protected resource metadata of RFC 9728."""
        document: JsonObject = {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Toolpost",
        }
        return document | ({"scopes_supported": list(self.scopes)} if self.scopes else {})

    def challenge(self, error: str | None = None, description: str | None = None) -> str:
        """Write a `WWW-Authenticate` header: the error, the required scopes, and the URL of the metadata."""
        parts = {
            "error": error,
            "error_description": description,
            "scope": " ".join(self.scopes) or None,
            "resource_metadata": self.metadata_url,
        }
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value is not None)
