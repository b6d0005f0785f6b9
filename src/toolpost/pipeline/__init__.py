"""What every call passes: tool-lock → schema-validate → audit-enter → dispatch → audit-exit."""

from toolpost.pipeline.audit import AuditExit, audit_enter
from toolpost.pipeline.call import Call
from toolpost.pipeline.dispatch import dispatch
from toolpost.pipeline.limits import within_limits
from toolpost.pipeline.lock import Lock
from toolpost.pipeline.progress import ProgressNote, ProgressShaper
from toolpost.pipeline.stage import Next, Outcome, compose
from toolpost.pipeline.validate import validate_arguments
from toolpost.store import AuditLog

__all__ = ["Call", "Next", "Outcome", "ProgressNote", "ProgressShaper", "standard_pipeline"]


def standard_pipeline(audit_log: AuditLog, *, waiting_limit: int, running_limit: int) -> Next:
    """Build what every call passes; this list is the order, and the only one."""
    return compose(
        [
            AuditExit(audit_log),  # acts last, and outside the limits: a refused or cancelled call is recorded too
            within_limits,
            Lock(waiting_limit=waiting_limit, running_limit=running_limit),
            validate_arguments,
            audit_enter,
        ],
        dispatch,
    )
