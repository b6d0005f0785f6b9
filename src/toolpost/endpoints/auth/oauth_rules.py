"""The settings of an OAuth 2.1 resource server, its challenge and its metadata. `oauth.py`, loaded only where needed,
verifies tokens by them.
"""

from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from toolpost.base.ids import JsonObject
from toolpost.endpoints.http.paths import MCP_PATH, METADATA_PATH, view_of
from toolpost.net.network import DIRECT, Network


@dataclass(frozen=True, kw_only=True)
class IntrospectionRules:
    """Where tokens are introspected (RFC 7662), and with which credentials."""

    url: str
    client: str
    secret: str = field(repr=False)
    cache_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class IssuerRules:
    """One authorization server, and what its tokens must contain to be accepted here."""

    issuer: str
    audiences: tuple[str, ...]
    """Accepted everywhere. Empty where each endpoint accepts its own URL only."""
    scopes: tuple[str, ...] = ()
    jwks_url: str | None = None
    introspection: IntrospectionRules | None = None
    network: Network = DIRECT
    """How it is reached."""


@dataclass(frozen=True, kw_only=True)
class OAuthRules:
    """This server as a protected resource, and the authorization servers that it trusts."""

    resource: str
    """The URL of this server as clients reach it."""
    issuers: tuple[IssuerRules, ...] = ()
    is_per_endpoint: bool = False
    """Whether `/mcp/server/NAME` and `/mcp/tags/…` are resources of their own, each with its own tokens."""

    login: str | None = None
    """The issuer of the authorization server of this gateway; None without one."""
    login_scopes: tuple[str, ...] = ()

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes that clients should ask for: those that every token of the main issuer must have."""
        return self.issuers[0].scopes if self.issuers else self.login_scopes

    def url_of(self, path: str) -> str:
        """Return the public URL of an MCP endpoint, which a token for it alone names; that of `/mcp` for other paths."""
        is_endpoint = path.startswith(f"{MCP_PATH}/") and view_of(path) is not None
        return self.resource + path.removeprefix(MCP_PATH) if is_endpoint else self.resource

    def resource_at(self, path: str) -> str:
        """Return the resource that a path belongs to: itself where endpoints have their own tokens, else this server."""
        return self.url_of(path) if self.is_per_endpoint else self.resource

    def metadata_url(self, path: str = MCP_PATH) -> str:
        """Where the metadata of a path's resource is, as RFC 9728 forms it."""
        parts = urlsplit(self.resource_at(path))
        place = "" if parts.path == "/" else parts.path
        return urlunsplit((parts.scheme, parts.netloc, f"{METADATA_PATH}{place}", parts.query, ""))

    def metadata(self, metadata_path: str = METADATA_PATH) -> JsonObject:
        """Return the protected resource metadata of RFC 9728, as it is asked for at this path."""
        below = metadata_path.removeprefix(METADATA_PATH).removeprefix(urlsplit(self.resource).path.rstrip("/"))
        document: JsonObject = {
            "resource": self.resource_at(f"{MCP_PATH}{below}"),
            "authorization_servers": [*filter(None, [self.login]), *(issuer.issuer for issuer in self.issuers)],
            "bearer_methods_supported": ["header"],
            "resource_name": "Toolpost",
        }
        return document | ({"scopes_supported": list(self.scopes)} if self.scopes else {})

    def challenge(self, error: str | None = None, description: str | None = None, *, path: str = MCP_PATH) -> str:
        """Write a `WWW-Authenticate` header: the error, the required scopes, and the URL of the metadata."""
        parts = {
            "error": error,
            "error_description": description,
            "scope": " ".join(self.scopes) or None,
            "resource_metadata": self.metadata_url(path),
        }
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value is not None)
