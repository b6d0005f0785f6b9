"""Who is calling: what an endpoint learnt before it let a request in."""

from dataclasses import dataclass

from toolpost.contracts.ids import CallerId


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Somebody, as the audit will name them; never a secret."""

    id: CallerId
    """`local` without authentication, else the name of the token that was shown."""

    transport: str
    """`stdio`, `http`, `memory` or `cli`."""

    session: str | None = None
    """The MCP session, where the era has one."""
