"""An OTLP receiver: over HTTP and gRPC, decoding what it is sent with the official protobuf classes."""

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.waiting import wait_until

KINDS = {Span.SPAN_KIND_SERVER: "SERVER", Span.SPAN_KIND_CLIENT: "CLIENT", Span.SPAN_KIND_INTERNAL: "INTERNAL"}


@dataclass(frozen=True, kw_only=True)
class ReceivedSpan:
    """A span, in plain values."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    state: str
    began: int
    ended: int
    is_error: bool
    message: str
    attributes: dict[str, Any]
    links: list[tuple[str, str]]


@dataclass
class Receiver:
    """What was received."""

    url: str = ""
    status: int = 200
    """What requests are answered with."""
    headers: list[dict[str, str]] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> None:
        if "trace" in path.lower():
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        else:
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))

    @property
    def spans(self) -> list[ReceivedSpan]:
        found = [
            span
            for request in list(self.traces)
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]
        return [_plain(span) for span in found]

    def named(self, name: str, kind: str | None = None) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name and kind in (None, span.kind)]

    def one(self, name: str, kind: str | None = None) -> ReceivedSpan:
        (found,) = self.named(name, kind)
        return found

    @property
    def latest_metrics(self) -> dict[str, Any]:
        """The metrics of the latest request, by name."""
        (of_resource,) = self.metrics[-1].resource_metrics
        (of_scope,) = of_resource.scope_metrics
        return {metric.name: metric for metric in of_scope.metrics}

    def resource(self) -> dict[str, Any]:
        return read_attributes(self.traces[0].resource_spans[0].resource.attributes)

    def wait_for(self, name: str, limit_s: float = 30.0) -> None:
        wait_until(lambda: self.named(name), limit_s=limit_s)


def read_attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _plain(span: Span) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=KINDS[span.kind],
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        state=span.trace_state,
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        message=span.status.message,
        attributes=read_attributes(span.attributes),
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
    )


@contextmanager
def open_receiver() -> Iterator[Receiver]:
    """Receive over HTTP."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.headers.append({key.lower(): value for key, value in self.headers.items()})
            if receiver.status == 200:
                is_packed = self.headers.get("content-encoding") == "gzip"
                receiver.take(self.path, gzip.decompress(body) if is_packed else body)
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def open_grpc_receiver() -> Iterator[Receiver]:
    """Receive over gRPC."""
    receiver = Receiver()

    class Services(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            def export(body: bytes, context: Any) -> bytes:
                receiver.headers.append(dict(context.invocation_metadata()))
                receiver.take(details.method, body)
                return b""

            return grpc.unary_unary_rpc_method_handler(export)

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Services(),))
    receiver.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()
