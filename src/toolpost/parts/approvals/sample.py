"""Selects calls for review by chance, verifiably, and keeps their contents: `[audit] sample`.

Evaluating the function takes half a millisecond, too long for every call. So it is evaluated once for each hour, with the input
`toolpost-audit-sample-v1`, a line feed and the hour of UTC (`2026-11-17T18`). A call is selected if the first 8 bytes of
SHA-256(output + call id), read as a number, are less than `sample` times 2**64. With the proof of an hour anyone can repeat that
for every call of the hour in the audit: those that were selected and those that were not.

Its key is not the one of `vrf_eval`: who may call that tool could otherwise know beforehand which calls are looked at.
"""

import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from toolpost import ToolInfo, ToolpostError
from toolpost.base import conceal_known, event, redact
from toolpost.middleware import Call, CheckedResult, NextStep
from toolpost.parts import Guard

if TYPE_CHECKING:
    from toolpost.settings import Config
    from toolpost.store import Store

_log = logging.getLogger("toolpost.approvals")

SAMPLE_KEY: Final = "vrf:audit"
KEPT_LIMIT: Final = 64 * 1024
"""Characters that are kept of arguments and of a result."""
READ_LIMIT_BYTES: Final = 1024 * 1024
"""A larger result is not kept at all: it would have to be parsed whole to hide the secrets in it."""
PRUNE_S: Final = 60.0
KEPT: Final = 10_000
"""How many calls' contents are kept, whatever their age; the oldest go first."""


@dataclass(frozen=True, kw_only=True)
class HourDraw:
    """The function, evaluated for an hour."""

    epoch: str
    output: bytes
    proof: str


def is_selected(output: bytes, call_id: str, sample: float) -> bool:
    """Whether a call is among those that are kept."""
    drawn = int.from_bytes(sha256(output + call_id.encode()).digest()[:8], "big")
    return drawn < int(sample * 2**64)


class SampleGuard(Guard):
    """Keeps the contents of some calls. It refuses none."""

    name = "audit sample"
    ignores_extensions = True

    def __init__(self, store: "Store", config: "Config", private: bytes) -> None:
        from toolpost.parts.approvals import vrf

        self._store = store
        self._settings = config.audit
        self._private = private
        self._public = vrf.public_key_of(private).hex()
        self._draw: HourDraw | None = None

    def may_apply(self, tool: ToolInfo) -> bool:  # noqa: ARG002 (as the protocol has it)
        """Every tool: chance alone selects."""
        return True

    def check(self, call: Call) -> Awaitable[None] | None:  # noqa: ARG002
        """Nothing: what was kept does not decide."""
        return None

    def applies_to_call(self, call: Call) -> bool:
        """Whether a call is selected; the others may take the fast path."""
        return is_selected(self._draw_of(call).output, call.id, self._settings.sample)

    async def admit(self, call: Call, proceed: NextStep) -> CheckedResult:
        """Pass the call on, and keep its contents if it is selected."""
        drawn = self._draw_of(call)
        if not is_selected(drawn.output, call.id, self._settings.sample):
            return await proceed(call)
        contents = self._store.audit_contents
        begun = contents.insert(
            call.id,
            epoch=drawn.epoch,
            sample=self._settings.sample,
            proof=drawn.proof,
            public_key=self._public,
            arguments=write(call.arguments),
        )
        # Before the call: what killed the gateway is worth a review.
        await self._commit(call, begun)
        ended = '{"error":"CANCELLED"}'
        try:
            outcome = await proceed(call)
            ended = write_result(outcome)
        except ToolpostError as error:
            ended = write(error.as_object())
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._commit(call, contents.set_result(call.id, ended))
        return outcome

    async def prune_often(self) -> None:
        """Remove what has been kept for long enough, as long as this runs."""
        kept = self._settings
        while True:
            try:
                await self._store.audit_contents.prune(keep_s=kept.keep_days * 86_400, keep=KEPT)
            except ToolpostError as error:
                event(_log, logging.WARNING, "contents of calls not pruned", exception=error)
            await anyio.sleep(PRUNE_S)

    def _draw_of(self, call: Call) -> HourDraw:
        epoch = time.strftime("%Y-%m-%dT%H", time.gmtime(call.at))
        if self._draw is None or self._draw.epoch != epoch:
            from toolpost.parts.approvals import vrf

            found = vrf.evaluate(self._private, self._store.audit_contents.input_of(epoch))
            self._draw = HourDraw(epoch=epoch, output=found.output, proof=found.proof.hex())
        return self._draw

    async def _commit(self, call: Call, write: Awaitable[None]) -> None:
        try:
            await write
        except ToolpostError as error:
            event(_log, logging.ERROR, "content of a selected call not kept", call=call.id, exception=error)


def write(value: Any) -> str:
    """Write a value as JSON without secrets, cut where it is long."""
    text = conceal_known(msgspec.json.encode(redact(value)).decode())
    return text if len(text) <= KEPT_LIMIT else f"{text[:KEPT_LIMIT]}… ({len(text)} characters)"


def write_result(outcome: CheckedResult) -> str:
    """Write the result of a call likewise."""
    if len(outcome.encoded) > READ_LIMIT_BYTES:
        return f"({len(outcome.encoded)} bytes, too large to be kept)"
    return write(msgspec.json.decode(outcome.encoded))
