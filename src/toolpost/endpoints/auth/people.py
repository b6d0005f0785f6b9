"""People who use the gateway in a browser, having signed in at an OpenID Connect provider: their roles, and what finds them.

A person is no caller of `[callers]`: MCP does not admit them, and a JSON API does as far as the role of its route goes. Who may
read sees what administrators see.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

if TYPE_CHECKING:
    from toolpost.endpoints.auth.roster import Claims

Role = Literal["viewer", "operator", "administrator"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""Each may do what those before it may."""

PEOPLE: Final = "console"
"""The callers' name of all of them: each is `console:SUBJECT`."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person who signed in in a browser."""

    subject: str
    """Who it is at the provider."""
    name: str
    """For people to read; another person may have the same."""
    role: Role
    signed_in_at: float
    """When they last proved to the provider who they are, in seconds of the wall clock; 0 if it did not say so."""

    def may(self, role: Role) -> bool:
        """Whether their role is this one, or a greater one."""
        return ROLES.index(self.role) >= ROLES.index(role)


class PersonProvider(Protocol):
    """An OpenID Connect provider that says who a person is."""

    issuer: str
    url: str
    """The public URL of this gateway, to which the provider sends browsers back."""

    async def begin(self, state: str, *, callback: str, is_fresh: bool) -> str:
        """Return the address at which a person signs in; with `is_fresh`, even if they are signed in already.

        `callback` is the path here to which they come back, with `state`, which must not be guessable. Raises `Forbidden`.
        """
        ...

    async def finish(self, code: str, state: str, *, issuer: str | None, callback: str) -> "Claims":
        """Return the claims of the ID token for a code, among them a subject; raises `Forbidden` for a code of another state."""
        ...
