"""The callers that a gateway knows, and a call with the rights of another one."""

from collections.abc import Sequence

from toolpost.base.caller import Caller, Scope
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import Forbidden, NotFound
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.auth.roster import Admission, Roster


def list_callers(roster: Roster) -> Sequence[tuple[CallerId, tuple[Scope, ...]]]:
    """Return the configured callers and what limits each; where no token is required, the one that everybody is."""
    if roster.anonymous is not None:
        return [(roster.anonymous.caller.id, roster.anonymous.scopes)]
    known = [*roster.members.callers, *filter(None, [roster.members.others])]
    callers = [Caller(id=CallerId(one.name), transport="http") for one in known]
    return [(caller.id, roster.scopes_of(caller) or ()) for caller in callers]


def act_as(roster: Roster, admission: Admission, name: str | None) -> tuple[Caller, View]:
    """Return who calls, and what it sees: the caller of a request, or for an administrator the one that `name` names.

    The credentials that a caller has at servers are its own, and no other caller uses them: an administrator sees the tools
    that servers list for the administrator, as far as the other may see them. Raises `Forbidden` and `NotFound`.
    """
    if name is None or name == admission.caller.id:
        return admission.caller, admission.view
    if not admission.is_admin:
        raise Forbidden("Only a caller with `admin = true` may call with the rights of another.")
    known = next((one for one in list_callers(roster) if one[0] == name), None)
    if known is None:
        raise NotFound(f"There is no caller `{name[:128]}`.", hint="the callers are those of [callers.NAME]")
    caller, scopes = known
    acting = Caller(id=caller, transport="http", acted_by=admission.caller.id)
    return acting, EVERYTHING.within(scopes).of_owner(admission.view.owner)
