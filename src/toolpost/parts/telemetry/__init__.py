"""OpenTelemetry: traces and metrics of all that passes the gateway, after the conventions for MCP.

part.py         the part: nothing else here is imported unless telemetry is on
settings.py     `[telemetry]` and the standard `OTEL_*` variables
observer.py     calls and other requests of clients: SERVER spans, and what happens inside
turns.py        turns of conversations
transport.py    requests to servers: CLIENT spans, and the `traceparent` that servers see
conventions.py  names, attributes, buckets
spans.py        spans as OTLP bytes
histograms.py   durations as OTLP bytes
exporter.py     bounded queue, thread, retries
senders.py      OTLP over HTTP and gRPC

docs/decisions/0056 says why spans are not made by the SDK of OpenTelemetry.
"""

from toolpost.parts import Part

PART = Part(
    name="telemetry",
    summary="OpenTelemetry: traces and metrics over OTLP.",
    opens="toolpost.parts.telemetry.part:open_telemetry",
    settings=("toolpost.parts.telemetry.settings:TELEMETRY",),
    doctor="toolpost.parts.telemetry.doctor:TelemetryDoctor",
)
