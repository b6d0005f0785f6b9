"""A log line is an event with fields, among them the ids that lead back to the call."""

import logging
from typing import Any


def event(
    logger: logging.Logger, level: int, name: str, *, exception: BaseException | None = None, **fields: Any
) -> None:
    """Log an event. How it looks, text or JSON, is the handler's business (`cli/logs.py`)."""
    if logger.isEnabledFor(level):
        logger.log(level, name, exc_info=exception, extra={"fields": fields})
