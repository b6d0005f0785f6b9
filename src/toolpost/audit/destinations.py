"""Where the audit is passed on to: a file of JSON lines, a webhook that is signed, OTLP logs.

A destination is handed a batch of records and returns once it has them for good; anything else raises `NotDelivered`, and the
same batch is handed over again. So a record may arrive twice, never not at all; its `seq` tells.
"""

import base64
import hashlib
import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import anyio.to_thread
import msgspec

from toolpost.audit.file import append_records, record_line, row_of
from toolpost.audit.spec import ExportSpec
from toolpost.base import conceal_known, event
from toolpost.base.version import __version__
from toolpost.net import HttpClient, HttpFailed, Network, Response
from toolpost.store.audit_values import AuditRecord

TIMEOUT_S: Final = 15.0
_log = logging.getLogger("toolpost.export")

_ANSWER_LIMIT: Final = 128 * 1024


class NotDelivered(Exception):
    """The destination does not have the records, or did not say so."""

    def __init__(self, reason: str) -> None:
        super().__init__(conceal_known(reason)[:300])


class AuditDestination(Protocol):
    """Takes records in the order of the chain."""

    async def deliver(self, records: Sequence[AuditRecord]) -> None:
        """Return once it has them for good; raises `NotDelivered`."""
        ...

    async def aclose(self) -> None: ...


def open_destination(export: ExportSpec, *, network: Network) -> AuditDestination:
    """Make the destination that is configured."""
    match export.kind:
        case "file":
            return FileDestination(export.path)
        case "webhook":
            return Webhook(export.url, secret=export.secret, headers=export.headers, network=network)
        case "otlp":
            return OtlpLogs(export.url, headers=export.headers, network=network)


class FileDestination:
    """Appends JSON lines to a file. Lines that it has already, after a crash or from another gateway, are not written again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def deliver(self, records: Sequence[AuditRecord]) -> None:
        try:
            await anyio.to_thread.run_sync(append_records, self._path, records)
        except OSError as error:
            raise NotDelivered(f"{self._path}: {error.strerror or error}") from error

    async def aclose(self) -> None: ...


class _HttpDestination:
    """Sends batches by POST."""

    def __init__(self, url: str, *, headers: Mapping[str, str], network: Network) -> None:
        self._client = HttpClient(url, headers=dict(headers), body_limit=_ANSWER_LIMIT, network=network)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _post(self, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> Response:
        try:
            with anyio.fail_after(TIMEOUT_S):
                response = await self._client.post(body, headers=headers)
        except TimeoutError as error:
            raise NotDelivered(f"no answer within {TIMEOUT_S:g} s") from error
        except HttpFailed as failure:
            raise NotDelivered(failure.reason) from failure
        if not 200 <= response.status < 300:
            raise NotDelivered(f"it answered with status {response.status}")
        return response


class Webhook(_HttpDestination):
    """Sends records as JSON, signed as the Standard Webhooks specification says.

    `webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, with the secret's bytes as the key.
    """

    def __init__(self, url: str, *, secret: bytes, headers: Mapping[str, str], network: Network) -> None:
        super().__init__(url, headers=headers, network=network)
        self._secret = secret

    async def deliver(self, records: Sequence[AuditRecord]) -> None:
        lines = b",".join(record_line(row_of(record)).rstrip() for record in records)
        body = b'{"type":"audit.records","records":[' + lines + b"]}"
        # The same for every attempt: a receiver recognizes by it what it has already.
        message_id = f"audit-{records[0].seq}-{records[-1].seq}-{records[-1].hash[-16:]}"
        at = str(int(time.time()))
        await self._post(
            body,
            [
                (b"webhook-id", message_id.encode()),
                (b"webhook-timestamp", at.encode()),
                (b"webhook-signature", sign(self._secret, message_id, at, body)),
            ],
        )


def sign(secret: bytes, message_id: str, at: str, body: bytes) -> bytes:
    """Return the header `webhook-signature`."""
    signed = hmac.new(secret, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return b"v1," + base64.b64encode(signed)


class OtlpLogs(_HttpDestination):
    """Sends records as log records in OTLP's JSON encoding: severity by outcome, fields as attributes."""

    async def deliver(self, records: Sequence[AuditRecord]) -> None:
        response = await self._post(msgspec.json.encode(otlp_body(records)))
        try:
            answer: Any = msgspec.json.decode(response.body or b"{}")
            rejected = int((answer.get("partialSuccess") or {}).get("rejectedLogRecords") or 0)
        except (msgspec.DecodeError, AttributeError, RecursionError, TypeError, ValueError):
            rejected = 0  # Some collectors answer a JSON request in protobuf, or with nothing.
        if rejected:
            # OTLP forbids to send them again: the receiver will never take them.
            event(
                _log,
                logging.ERROR,
                "audit records rejected",
                rejected=rejected,
                first=records[0].seq,
                last=records[-1].seq,
            )


def otlp_body(records: Sequence[AuditRecord]) -> dict[str, Any]:
    """Return an `ExportLogsServiceRequest`."""
    resource = {"attributes": [_attribute("service.name", "toolpost"), _attribute("service.version", __version__)]}
    scope = {"name": "toolpost.audit", "version": __version__}
    logs = [{"scope": scope, "logRecords": [_log_record(record) for record in records]}]
    return {"resourceLogs": [{"resource": resource, "scopeLogs": logs}]}


def _log_record(record: AuditRecord) -> dict[str, Any]:
    entry = record.entry
    at = int(datetime.fromisoformat(entry.at_utc).timestamp() * 1000) * 1_000_000
    severity, name = (9, "INFO") if entry.outcome == "ok" else (13, "WARN")
    attributes = {
        # The names of the semantic conventions where there is one.
        "gen_ai.tool.name": entry.tool,
        "error.type": entry.code,
        "toolpost.audit.seq": record.seq,
        "toolpost.audit.hash": record.hash,
        "toolpost.audit.previous": record.previous,
        "toolpost.call.id": entry.call_id,
        "toolpost.caller": entry.caller,
        "toolpost.source": entry.source,
        "toolpost.contract": entry.contract,
        "toolpost.schema_version": entry.schema_version,
        "toolpost.tooling_version": entry.tooling_version,
        "toolpost.arguments": entry.arguments,
        "toolpost.outcome": entry.outcome,
        "toolpost.duration_ms": entry.duration_ms,
        "toolpost.result": entry.result,
    }
    is_trace = len(entry.trace_id) == 32
    return {
        "timeUnixNano": str(at),
        "observedTimeUnixNano": str(at),
        "severityNumber": severity,
        "severityText": name,
        "eventName": "toolpost.audit",
        "body": {"stringValue": f"{entry.tool} {entry.code or entry.outcome}"},
        "attributes": [_attribute(key, value) for key, value in attributes.items() if value is not None],
        **({"traceId": entry.trace_id} if is_trace else {}),
    }


def _attribute(key: str, value: str | int | float) -> dict[str, Any]:
    if isinstance(value, str):
        return {"key": key, "value": {"stringValue": value}}
    return {"key": key, "value": {"doubleValue": value} if isinstance(value, float) else {"intValue": str(value)}}
