"""Limits of a process for itself: one that reads what strangers wrote, and may need any amount of memory for it."""

import os
import sys
from typing import Final

MEMORY_LIMIT_BYTES: Final = 4 * 1024**3
"""Of address space: the issues of a schema with thousands of branches may take a lot."""


def limit_resources() -> None:
    """Lower the priority of this process, and limit its memory."""
    if sys.platform == "win32":
        return
    import resource

    os.nice(5)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_LIMIT_BYTES if most == resource.RLIM_INFINITY else min(most, MEMORY_LIMIT_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
