"""Passes the audit on to other systems, and removes what is older than wanted.

settings      `[export.NAME]` and `[retention]`
destinations  a file, a signed webhook, OTLP logs
exporter      delivers the records, at least once each, and remembers how far it came
retention     seals and removes the oldest records
part          what the gateway opens
"""

from toolpost.parts import Part

PART = Part(
    name="export",
    summary="Export and retention of the audit.",
    opens="toolpost.parts.export.part:open_export",
    settings=(
        "toolpost.parts.export.settings:EXPORTS",
        "toolpost.parts.export.settings:RETENTION",
    ),
    doctor="toolpost.parts.export.doctor:ExportDoctor",
    find_idle="toolpost.parts.export.part:find_idle",
)
