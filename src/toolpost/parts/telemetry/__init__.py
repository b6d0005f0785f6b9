"""OpenTelemetry: traces and metrics of all that passes the gateway, after the conventions for MCP.

part               the part: nothing else here is imported unless telemetry is on; `doctor` is what `toolpost doctor` says
settings           `[telemetry]` and the standard `OTEL_*` variables
observer           listens to all that passes the gateway, for spans and durations
call_spans         calls as SERVER spans, with what happened inside
request_spans      other requests of clients as SERVER spans; `client_attributes` are those of both
server_spans       requests to servers as CLIENT spans, and the `traceparent` that servers see
turns              turns of conversations
conventions        names, attributes, buckets
spans, templates   spans as OTLP bytes, and what spans of one kind have in common
histograms         durations as OTLP bytes
exporter           bounded queue, thread, retries
senders            OTLP over HTTP and gRPC

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
