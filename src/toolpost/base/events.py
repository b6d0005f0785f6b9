"""Log lines are events with fields, among them the ids that lead back to the call."""

import logging
from typing import Any


def event(
    logger: logging.Logger, level: int, name: str, *, exception: BaseException | None = None, **fields: Any
) -> None:
    """Log an event. The handler decides how it looks, text or JSON (`cli/logs.py`)."""
    if logger.isEnabledFor(level):
        logger.log(level, name, exc_info=exception, extra={"fields": fields})
