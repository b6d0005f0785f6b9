"""`[console]`: whether the web console is served, and the roles of people who sign in to it."""

from collections.abc import Collection
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from toolpost.parts import Section
from toolpost.settings import ADVANCED

Role = Literal["viewer", "operator", "administrator"]


class RoleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Roles of people who sign in at the provider of `[login.provider]`, by their groups there. Without a role, no access."""

    viewer: Annotated[list[str], Meta(description="groups whose people see everything", extra=ADVANCED)] = []
    operator: Annotated[
        list[str], Meta(description="groups whose people also run tools and restart servers", extra=ADVANCED)
    ] = []
    administrator: Annotated[
        list[str],
        Meta(description="groups whose people also change servers and contracts, and make callers", extra=ADVANCED),
    ] = []
    claim: Annotated[
        str,
        Meta(description="the claim of the ID token that has the groups; `a.b` is `b` within `a`", extra=ADVANCED),
    ] = "groups"
    session_s: Annotated[
        int,
        Meta(ge=60, le=2_592_000, description="how long after signing in a person has to do so again", extra=ADVANCED),
    ] = 28_800

    @property
    def groups(self) -> frozenset[str]:
        """All groups that have a role."""
        return frozenset((*self.viewer, *self.operator, *self.administrator))

    def find_role(self, groups: Collection[str]) -> Role | None:
        """Return the greatest role of these groups; None without one."""
        ranked: tuple[tuple[Role, list[str]], ...] = (
            ("administrator", self.administrator),
            ("operator", self.operator),
            ("viewer", self.viewer),
        )
        return next((role for role, named in ranked if not set(groups).isdisjoint(named)), None)


class ConsoleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The web console."""

    enabled: Annotated[bool, Meta(description="serve it at `/`")] = True
    roles: RoleSettings = RoleSettings()


CONSOLE: Final = Section(name="console", struct=ConsoleSettings, default=ConsoleSettings())
