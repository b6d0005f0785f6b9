"""`/api/console/calls`: the audit. An administrator sees the calls of all callers, another caller its own.

GET  /calls?tool=&caller=&code=&outcome=&since=&until=   calls, the newest first; `next` of an answer is `&before=` for the next
GET  /call?id=                                           one call: message and issues of its error, and its lines of the log
                                                         (null where the log has none); how long each of its steps took
                                                         (null if that is not kept); the others of its trace; the gateway
                                                         that it ran in; what was kept of its contents for who may change
                                                         something
POST /calls/verify                                       verify the whole chain
"""

import re
from dataclasses import asdict
from typing import Final, get_args

import msgspec

from toolpost import ErrorCode, NotFound
from toolpost.audit import AuditFilter, AuditRecord, Outcome
from toolpost.base import Json, JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.gateways import find_gateway
from toolpost.parts.console.log_view import LogView, find_error

PAGE: Final = 200
PAGE_LIMIT: Final = 1_000
_MOMENT: Final = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d(\.\d{1,3})?)?)?Z?)?)?)?")


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    audit = console.host.store.audit

    async def list_calls(request: RouteRequest) -> Json:
        query = request.query
        limit = _number(query, "limit", PAGE_LIMIT) or PAGE
        matching = _read_filter(request, limit)
        records = await audit.entries(matching, limit=limit)
        found = [render_call(record) for record in reversed(records)]
        return {
            "calls": found,
            "next": records[0].seq if len(records) == limit else None,
            "codes": [code.value for code in ErrorCode],
            "outcomes": list(get_args(Outcome)),
        }

    async def show(request: RouteRequest) -> Json:
        call_id = text_of(request, "id")
        caller = _only_caller(request)
        records = await audit.entries(AuditFilter(call_id=call_id, caller=caller, last=1), limit=1)
        if not records:
            raise NotFound(
                f"There is no record of the call `{call_id[:128]}`.",
                hint="it may not have ended yet, or be another caller's",
            )
        (record,) = records
        trace = await audit.entries(AuditFilter(trace_id=record.entry.trace_id, caller=caller, last=100), limit=100)
        content, lines = None, []
        log = LogView.of(console, request.admission)
        if log is not None:
            lines = await log.read_call(record.entry.call_id, record.entry.at_utc, record.entry.duration_ms)
        may_read = console.may_write(request)
        if may_read:
            contents = await console.host.store.audit_contents.find([record.entry.call_id])
            content = contents.get(record.entry.call_id)
        return {
            **render_call(record),
            "steps": console.timings.find(record.entry.call_id),
            "trace": [render_call(other) for other in trace],
            "error": find_error(lines),
            "lines": lines if may_read else None,
            "isServer": record.entry.source in console.http.servers.providers,
            "thread": next((line["thread"] for line in lines if line.get("thread")), None),
            "logIsKept": log is not None,
            "gateway": await find_gateway(console.host.store, record.entry.call_id, console.http.gateway.call_prefix),
            "content": {"arguments": content.arguments, "result": content.result} if content is not None else None,
        }

    async def verify(_: RouteRequest) -> Json:
        verdict = await audit.verify()
        return {**asdict(verdict), "isIntact": verdict.is_intact, "isEmpty": verdict.is_empty}

    return [
        console.read("/calls", list_calls),
        console.read("/call", show),
        console.change("/calls/verify", verify),
    ]


def render_call(record: AuditRecord) -> JsonObject:
    """Return a record as JSON."""
    return {
        "seq": record.seq,
        **msgspec.to_builtins(record.entry),
        "previous": record.previous,
        "hash": record.hash,
    }


def _only_caller(request: RouteRequest) -> str | None:
    """Return the one caller whose calls may be seen; None if those of all may."""
    return None if request.admission.is_admin else request.admission.caller.id


def _read_filter(request: RouteRequest, limit: int) -> AuditFilter:
    query = {name: value for name, value in request.query.items() if value}
    for name in ("since", "until"):
        if name in query and not _MOMENT.fullmatch(query[name]):
            raise InvalidRequest(f"`{name}` is not a time.", hint="write it as 2026-11-17T09:30:00Z")
    if (outcome := query.get("outcome")) is not None and outcome not in get_args(Outcome):
        raise InvalidRequest(f"`{outcome[:40]}` is no outcome.", hint=f"known: {', '.join(get_args(Outcome))}")
    only = _only_caller(request)
    if only is not None and query.get("caller", only) != only:
        # As if there were none: whether another caller exists is not told.
        query["before"] = "0"
    return AuditFilter(
        tool=query.get("tool"),
        caller=only or query.get("caller"),
        code=query.get("code"),
        outcome=outcome,  # type: ignore[arg-type] # checked above
        since=query.get("since"),
        until=query.get("until"),
        trace_id=query.get("trace"),
        before=_number(query, "before", 2**62),
        last=limit,
    )


def _number(query: dict[str, str], name: str, most: int) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise InvalidRequest(f"`{name}` is a number up to {most}.")
    return int(text)
