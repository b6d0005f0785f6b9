"""The doors of the kernel: the modules that a part may import from, by the names in their `__all__`."""

from typing import Final

DOORS: Final = (
    "toolpost.parts",
    "toolpost.admin",
    "toolpost.audit",
    "toolpost.base",
    "toolpost.cli",
    "toolpost.contracts",
    "toolpost.credentials",
    "toolpost.discovery",
    "toolpost.endpoints.http",
    "toolpost.fairness",
    "toolpost.gateway",
    "toolpost.metrics",
    "toolpost.middleware",
    "toolpost.net",
    "toolpost.processes",
    "toolpost.protocol",
    "toolpost.settings",
    "toolpost.store",
    "toolpost.terminal",
    "toolpost.upstreams",
)
