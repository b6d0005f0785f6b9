"""Log lines are events with fields, among them the ids that lead back to the call."""

import logging
from typing import Any, Final

SERVER_OUTPUT: Final = logging.getLogger("toolpost.output")
"""What servers write to stderr. It goes to the log on disk, not to the terminal: they may write a lot."""
SERVER_OUTPUT.propagate = False

OUTPUT_EVENT: Final = "output"


def event(
    logger: logging.Logger, level: int, name: str, *, exception: BaseException | None = None, **fields: Any
) -> None:
    """Log an event. The handler decides how it looks, text or JSON (`terminal/logging.py`)."""
    if logger.isEnabledFor(level):
        logger.log(level, name, exc_info=exception, extra={"fields": fields})
