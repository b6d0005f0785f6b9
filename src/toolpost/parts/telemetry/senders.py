"""OTLP requests over HTTP and gRPC, sent by the exporter's thread."""

import gzip
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from toolpost import __version__
from toolpost.parts.telemetry.settings import Destination, Signal

_RETRYABLE_STATUS: Final = frozenset({429, 502, 503, 504})
_SERVICES: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
_RETRYABLE_CODES: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS", "RESOURCE_EXHAUSTED"}
)


class NotSent(Exception):
    """A receiver did not take a request; `may_retry` says whether it may take it later."""

    def __init__(self, reason: str, *, may_retry: bool) -> None:
        super().__init__(reason)
        self.may_retry = may_retry


class Sender(Protocol):
    """Sends the body of a request."""

    def send(self, body: bytes) -> None:
        """Send it; raises `NotSent`."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def make_sender(destination: Destination, signal: Signal) -> Sender:
    """Make the sender of a signal."""
    return HttpSender(destination) if destination.protocol == "http/protobuf" else GrpcSender(destination, signal)


class HttpSender:
    """OTLP over HTTP, with bodies in protobuf, on one connection that is kept. The standard library is enough for it, and takes
    a tenth of the time that a client for many hosts does.
    """

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        parts = urlsplit(destination.url)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host, port, timeout_s = parts.hostname or "", parts.port, destination.timeout_s
        self._connection = (
            HTTPSConnection(host, port, timeout=timeout_s, context=_tls_context(destination))
            if parts.scheme == "https"
            else HTTPConnection(host, port, timeout=timeout_s)
        )
        self._headers = {"content-type": "application/x-protobuf", "user-agent": f"toolpost/{__version__}"}
        if destination.is_compressed:
            self._headers["content-encoding"] = "gzip"
        self._headers |= destination.headers

    def send(self, body: bytes) -> None:
        content = gzip.compress(body, 1) if self._destination.is_compressed else body
        try:
            status = self._post(content)
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise NotSent(str(error) or type(error).__name__, may_retry=True) from error
        if status >= 300:
            raise NotSent(f"it answered with status {status}", may_retry=status in _RETRYABLE_STATUS)

    def _post(self, content: bytes) -> int:
        try:
            return self._post_once(content)
        except (RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # A connection that was kept may have been closed since: the next one is new.
            self._connection.close()
            return self._post_once(content)

    def _post_once(self, content: bytes) -> int:
        self._connection.request("POST", self._path, content, self._headers)
        response = self._connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        self._connection.close()


def _tls_context(destination: Destination) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=destination.certificate)
    if destination.client_certificate is not None:
        context.load_cert_chain(destination.client_certificate, destination.client_key)
    return context


class GrpcSender:
    """OTLP over gRPC. Bodies are written already, so there is nothing to be serialized."""

    def __init__(self, destination: Destination, signal: Signal) -> None:
        import grpc

        self._failure: type[Exception] = grpc.RpcError
        self._destination = destination
        address = destination.url.partition("://")[2].rstrip("/")
        if destination.url.startswith("https:"):
            self._channel = grpc.secure_channel(address, _grpc_credentials(grpc, destination))
        else:
            self._channel = grpc.insecure_channel(address)
        self._export = self._channel.unary_unary(_SERVICES[signal])
        self._metadata = tuple((key.lower(), value) for key, value in destination.headers.items())
        self._compression = grpc.Compression.Gzip if destination.is_compressed else None

    def send(self, body: bytes) -> None:
        try:
            self._export(
                body, timeout=self._destination.timeout_s, metadata=self._metadata, compression=self._compression
            )
        except self._failure as error:
            code = error.code().name  # type: ignore[attr-defined]
            raise NotSent(f"it answered with {code}", may_retry=code in _RETRYABLE_CODES) from error

    def close(self) -> None:
        self._channel.close()


def _grpc_credentials(grpc: Any, destination: Destination) -> Any:
    def read(path: str | None) -> bytes | None:
        if path is None:
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()

    return grpc.ssl_channel_credentials(
        read(destination.certificate), read(destination.client_key), read(destination.client_certificate)
    )
