"""Which results are too large for an answer, and the answer in place of one.

The audit has recorded the result as the tool gave it. Sent instead:

- structured content, cut so that it satisfies the output schema, which is checked. If that cannot be done it is left out, and the
  result says `isError`: clients accept a result without structured content only like that, once the tool lists a schema;
- content, with long texts cut and large images and files as links;
- a text that says what is missing and how it is read, and a link to the whole result;
- the same in `_meta`, for programs.

The whole result is kept first. One that cannot be kept is sent whole, so that nothing is ever lost.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from anyio import CapacityLimiter, to_thread

from toolpost import ResultStyle
from toolpost.base import META_KEY, Json, JsonObject, event, format_second
from toolpost.contracts import Contract, digest_of_bytes
from toolpost.metrics import Counter, Metrics
from toolpost.middleware import Call, CheckedResult, is_input_required
from toolpost.parts import ResultLimiter
from toolpost.parts.results.content import ShortContent, Span, shorten_content
from toolpost.parts.results.cut import CannotCut, cut_json, cut_string
from toolpost.parts.results.kept import KeptResults, new_result_id, uri_of
from toolpost.parts.results.records import KeptResult, ResultId
from toolpost.parts.results.scan import QUOTE, Scanner, TooManySteps
from toolpost.parts.results.settings import LimitTable, SizeLimits

_log = logging.getLogger("toolpost.results")
_encode = msgspec.json.Encoder().encode

PLUGIN: Final = "results"
READ_TOOL: Final = "results__read"
WHOLE_RESULT: Final = "wholeResult"
"""What a client says under our key in `_meta` to get a result whatever its size."""
_THREAD_BYTES: Final = 16 * 1024
"""Larger results are walked through in a thread: each kilobyte of brackets takes a millisecond."""
_EXTRA_FIELD_BYTES: Final = 8_192
"""Fields of a result that MCP does not name, and `_meta`, are left out above this size."""
_PASSED_ON: Final = frozenset({b"content", b"structuredContent", b"isError"})


class ResultMetrics:
    """The counters."""

    def __init__(self, metrics: Metrics) -> None:
        self.limited = metrics.add(
            Counter(
                "toolpost_results_limited_total",
                "Results over the limit of their caller: cut, without their structured content, or whole because they could"
                " not be kept.",
                label="answer",
            )
        )
        self.kept_bytes = metrics.add(
            Counter("toolpost_results_kept_bytes_total", "Bytes of large results that were kept.")
        )


@dataclass(kw_only=True)
class _Short:
    """The excerpt of a result."""

    content: list[bytes] = field(default_factory=list)
    structured: bytes | None = None
    """The cut value: the structured content of a server's result, the data of a function's."""
    others: dict[str, msgspec.Raw] = field(default_factory=dict)
    """Fields that are passed on."""
    is_error: bool = False
    is_whole: bool = True
    """Whether nothing had to be left out after all."""
    lacks_structure: bool = False
    """Whether structured content had to be left out."""
    places: dict[str, Span] = field(default_factory=dict)
    rest: tuple[str, int] | None = None
    lacks_blocks: bool = False


class Limiter(ResultLimiter):
    """Makes large results smaller."""

    def __init__(self, kept: KeptResults, limits: LimitTable, metrics: ResultMetrics, *, small_bytes: int) -> None:
        self.small_bytes = small_bytes
        self._kept = kept
        self._limits = limits
        self._metrics = metrics
        # Walking through JSON holds the interpreter: more threads at once would not be faster.
        self._threads = CapacityLimiter(1)

    async def limit(self, call: Call, result: CheckedResult) -> CheckedResult:
        """Return the result itself, or a smaller one that says where the rest is."""
        limits = self._find_limits(call)
        if limits is None or not _is_large(result, limits):
            return result
        try:
            short = await self._shorten(call, result, limits)
        except Exception as error:  # noqa: BLE001 (the call has succeeded: its caller must get the result)
            event(_log, logging.ERROR, "large result sent whole", **call.log_fields, exception=error)
            short = None
        if short is None:
            self._metrics.limited.add(of="whole")
            return result
        return short

    def _find_limits(self, call: Call) -> SizeLimits | None:
        facts = call.context.meta.get(META_KEY)
        if call.wants_whole_result or (isinstance(facts, dict) and facts.get(WHOLE_RESULT) is True):
            return None
        # What is read of a kept result has the size that was asked for: cutting it again would never end.
        if call.tool.provider == PLUGIN and not call.tool.is_remote:
            return None
        return self._limits.find(call.tool.contract.name, call.caller.id)

    async def _shorten(self, call: Call, result: CheckedResult, limits: SizeLimits) -> CheckedResult | None:
        if result.upstream_fields is not None and is_input_required(result.upstream_fields):
            return result
        has_links = call.has_structured_result
        beside = _encode(list(result.content)) if result.content else b""
        name = new_result_id()
        shortening = _Shortening(call.tool.contract, result, beside, limits, name, has_links=has_links)
        size = len(result.encoded) + len(beside)
        if size <= _THREAD_BYTES:
            short, digest = shortening.run()
        else:
            short, digest = await to_thread.run_sync(shortening.run, limiter=self._threads)
        if short.is_whole:
            return result
        new = KeptResult(
            id=name,
            caller=call.caller.id,
            tool=call.tool.contract.name,
            call_id=call.id,
            digest=digest,
            bytes=len(result.encoded),
            total_bytes=size,
            places=short.places,
        )
        expires_at = await self._kept.keep(new, result.encoded, beside)
        if expires_at is None:
            event(_log, logging.WARNING, "large result sent whole", **call.log_fields, bytes=size, reason="not kept")
            return None
        self._metrics.limited.add(of="without structure" if short.lacks_structure else "cut")
        self._metrics.kept_bytes.add(size)
        kept = replace(new, expires_at=expires_at)
        lists_schema = call.tool.contract.terms.output_schema is not None
        return _write(result, short, kept, lists_schema=lists_schema, has_links=has_links)


def _is_large(result: CheckedResult, limits: SizeLimits) -> bool:
    fields = result.upstream_fields
    if fields is not None:
        if len(result.encoded) <= min(limits):
            return False
        structured, content = (len(memoryview(fields.get(key, b""))) for key in ("structuredContent", "content"))
        # What is in the content is seen only block by block; below both limits it fits whatever it is.
        return structured > limits.text_bytes or content > min(limits)
    return len(result.encoded) > limits.text_bytes or _measure(result.content) > min(limits)


def _measure(content: Sequence[Json]) -> int:
    """Return about how large content is, without writing it."""
    values = [value for block in content if isinstance(block, dict) for value in block.values()]
    values += [inner for value in values if isinstance(value, dict) for inner in value.values()]
    return sum(len(value) for value in values if isinstance(value, str))


class _Shortening:
    """Makes one result smaller; `run` may run in a thread."""

    def __init__(
        self,
        contract: Contract,
        result: CheckedResult,
        beside: bytes,
        limits: SizeLimits,
        name: ResultId,
        *,
        has_links: bool,
    ) -> None:
        self._contract = contract
        self._result = result
        self._data = result.encoded
        self._beside = beside
        self._limits = limits
        self._name = name
        self._has_links = has_links

    def run(self) -> tuple[_Short, str]:
        """Return the excerpt, and the digest of the whole."""
        short = self._shorten_data() if self._result.upstream_fields is None else self._shorten_fields()
        return short, digest_of_bytes(self._data)

    def _shorten_data(self) -> _Short:
        """Make the data of a function smaller, and the content beside it."""
        size = len(self._data)
        short = _Short(places={"/data": (0, size)})
        if self._beside:
            content = shorten_content(Scanner(self._beside), 0, self._limits, self._name, has_links=self._has_links)
            short.content, short.lacks_blocks, short.rest = content.blocks, content.lacks_blocks, content.rest
            short.is_whole = content.is_whole
            short.places["/content"] = size, size + len(self._beside)
        if size <= self._limits.text_bytes:
            short.structured = self._data
            return short
        short.rest, short.is_whole = ("/data", 0), False
        short.structured = self._cut_structure(0, size, is_wrapped=False)
        if short.structured is None:
            short.lacks_structure = True
            head, shown = self._quote_head(0, size)
            short.content.insert(0, b'{"type":"text","text":%b}' % head)
            short.rest = "/data", shown
        return short

    def _shorten_fields(self) -> _Short:
        """Make the result of a server, or one that a function made itself, smaller."""
        short = _Short(is_error=self._result.is_error, is_whole=False)
        scanner = Scanner(self._data)
        try:
            fields = {self._data[m.key[0] + 1 : m.key[1] - 1]: (m.start, m.end) for m in scanner.members(0) if m.key}
            content, structured = fields.get(b"content"), fields.get(b"structuredContent")
            made = ShortContent()
            if content is not None:
                made = shorten_content(scanner, content[0], self._limits, self._name, has_links=self._has_links)
        except TooManySteps:
            # Nothing but brackets: its beginning is shown as it is.
            head, shown = self._quote_head(0, len(self._data))
            short.content, short.rest = [b'{"type":"text","text":%b}' % head], ("", shown)
            short.places = {"": (0, len(self._data))}
            short.lacks_structure = "structuredContent" in (self._result.upstream_fields or {})
            return short
        short.content, short.lacks_blocks, short.rest = made.blocks, made.lacks_blocks, made.rest
        others = {key: span for key, span in fields.items() if key not in _PASSED_ON}
        for key, (start, end) in others.items():
            if end - start <= _EXTRA_FIELD_BYTES and b"\\" not in key:
                short.others[key.decode()] = msgspec.Raw(self._data[start:end])
        is_long = structured is not None and structured[1] - structured[0] > self._limits.text_bytes
        short.is_whole = made.is_whole and not is_long and len(short.others) == len(others)
        if structured is not None:
            short.structured = self._fit_structure(*structured)
            short.lacks_structure = short.structured is None
        # First what is read without another choice: the longest text, then the structured content.
        short.places = dict(sorted(made.places.items(), key=lambda item: item[1][0] - item[1][1]))
        if structured is not None:
            short.places["/structuredContent"] = structured
        short.places[""] = 0, len(self._data)
        if short.rest is None and is_long:
            short.rest = "/structuredContent", 0
        return short

    def _fit_structure(self, start: int, end: int) -> bytes | None:
        if end - start <= self._limits.text_bytes:
            return self._data[start:end]
        if self._result.is_error:
            return None  # nothing has to be there, and what is there might be validated
        is_wrapped = not self._contract.is_upstream and self._contract.terms.style is ResultStyle.ENVELOPE
        return self._cut_structure(start, end, is_wrapped=is_wrapped)

    def _cut_structure(self, start: int, end: int, *, is_wrapped: bool) -> bytes | None:
        """Return a smaller value that satisfies the output schema; None if there is none.

        A schema may ask for a pattern or for so many items: then cutting only arrays, or only strings, may still do.
        """
        schema = self._contract.result_schema
        budget = self._limits.text_bytes
        if schema is not None:
            # Above it, validating might take long.
            budget = min(budget, schema.inline_limit_bytes)
        for strings, arrays in ((True, True), (False, True), (True, False)):
            try:
                made = cut_json(self._data, start, end, budget, strings=strings, arrays=arrays)
                value = msgspec.json.decode(made)
            except (CannotCut, TooManySteps, msgspec.DecodeError, RecursionError):
                continue
            if is_wrapped:
                if not isinstance(value, dict) or "data" not in value:
                    continue
                value = value["data"]
            if schema is None or schema.is_valid(value):
                return made
        return None

    def _quote_head(self, start: int, end: int) -> tuple[bytes, int]:
        """Return the beginning of some JSON as a JSON string, and how much of it that is."""
        if self._data[start] == QUOTE:
            text, shown = cut_string(self._data, start, end, self._limits.text_bytes)
            return text, shown - start - 1
        shown = min(end - start, self._limits.text_bytes // 2)
        head = self._data[start : start + shown]
        # Not in the middle of a character.
        while shown and start + shown < end and self._data[start + shown] & 0xC0 == 0x80:
            shown -= 1
        return _encode(head[:shown].decode("utf-8", "replace") + f"… [{end - start - shown} more bytes]"), shown


def _write(
    result: CheckedResult, short: _Short, kept: KeptResult, *, lists_schema: bool, has_links: bool
) -> CheckedResult:
    """Write the result that is sent."""
    facts = {
        "id": kept.id,
        "uri": uri_of(kept.id),
        "bytes": kept.bytes,
        "digest": kept.digest,
        "expiresAt": format_second(kept.expires_at),
    }
    blocks: list[JsonObject] = [{"type": "text", "text": _describe(kept, short, str(facts["expiresAt"]))}]
    if has_links:
        blocks.append(
            {
                "type": "resource_link",
                "uri": facts["uri"],
                "name": f"the whole result of {kept.tool}",
                "mimeType": "application/json",
                "size": kept.bytes,
            }
        )
    told = {**(result.facts or {}), "truncated": facts}
    if result.upstream_fields is None and short.structured is not None:
        content = [msgspec.json.decode(block) for block in short.content]
        return CheckedResult(short.structured, [*content, *blocks], facts=told)
    content_raw = b"[%b]" % b",".join([*short.content, *map(_encode, blocks)])
    fields = {"content": msgspec.Raw(content_raw)}
    if short.structured is not None and short.structured[:1] in b"{[":
        fields["structuredContent"] = msgspec.Raw(short.structured)
    # The tool has succeeded. Clients that know its output schema refuse a result without structured content unless it says this;
    # those of older revisions do not know the schema.
    says_error = short.is_error or (short.lacks_structure and lists_schema and has_links)
    fields["isError"] = msgspec.Raw(b"true" if says_error else b"false")
    fields |= short.others
    return CheckedResult(_encode(fields), upstream_fields=fields, is_error=short.is_error, facts=told)


def _describe(kept: KeptResult, short: _Short, until: str) -> str:
    """Tell a model what is missing, and the call that reads on."""
    call: JsonObject = {"id": kept.id}
    if short.rest is not None:
        pointer, shown = short.rest
        if pointer != next(iter(kept.places), ""):
            call["select"] = pointer
        if shown:
            call["offset"] = shown
    outcome = "" if short.is_error else "The call succeeded. "
    missing = ", some blocks of its content are left out" if short.lacks_blocks else ""
    structure = ", without its structured content, which has no shorter form" if short.lacks_structure else ""
    return (
        f"[Truncated] {outcome}Its result has {kept.total_bytes} bytes, and this is a part of it{missing}{structure}. "
        f"Read on with the tool {READ_TOOL} {_encode(call).decode()}; it also takes `grep`, a regular expression, and `select`, "
        f"a JSON pointer. The whole result is kept for you until {until}."
    )
