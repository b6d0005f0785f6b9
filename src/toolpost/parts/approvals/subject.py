"""The subject of a vote, and the bytes that a vote signs.

The subject of a call names the tool, its contract, the caller and the arguments, which are in it twice: `arguments` is the digest
of what voters see; `exact` is keyed with a secret of the store, and covers what is hidden from voters as well, so that it cannot
be guessed by trying values.
"""

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from toolpost.base import JsonObject
from toolpost.contracts import canonical_digest, quick_digest
from toolpost.parts.approvals.rounds import Choice, RoundId

VOTE_HEADER = "toolpost-vote-v1"

_sorted = msgspec.json.Encoder(order="sorted")


def digest_exactly(secret: bytes, arguments: JsonObject) -> str:
    """Digest all of the arguments with a key."""
    return "hmac-sha256:" + hmac.new(secret, _sorted.encode(arguments), sha256).hexdigest()


@dataclass(frozen=True, kw_only=True)
class CallSubject:
    """A call that needs approval."""

    tool: str
    provider: str
    contract: str
    caller: str
    arguments: JsonObject
    definition: JsonObject
    """The tool as it is listed, for voters to see."""
    rule: str
    voters: tuple[str, ...]
    needed: int

    def key(self, exact: str) -> str:
        """Return what two calls have in common that the same approval is for. A rule that was changed asks again."""
        voters = sorted(self.voters)
        return canonical_digest(["call", self.tool, exact, self.contract, self.caller, self.rule, voters, self.needed])

    def describe(self, arguments: JsonObject, exact: str, *, gateway: str, expires_at: str) -> JsonObject:
        """Return the subject of a round on this call; `arguments` are those that voters see."""
        return {
            "kind": "call",
            "gateway": gateway,
            "nonce": secrets.token_hex(16),
            "tool": self.tool,
            "provider": self.provider,
            "contract": self.contract,
            "caller": self.caller,
            "arguments": quick_digest(arguments),
            "exact": exact,
            "expires_at": expires_at,
        }


def subject_of_proposal(*, gateway: str, caller: str, digest: str, expires_at: str) -> JsonObject:
    """Return the subject of a round on a text or a digest."""
    return {
        "kind": "proposal",
        "gateway": gateway,
        "nonce": secrets.token_hex(16),
        "caller": caller,
        "digest": digest,
        "expires_at": expires_at,
    }


def message_of_vote(round_id: RoundId, subject_digest: str, choice: Choice, signed_at: str) -> bytes:
    """Return the bytes that are signed: five lines of text, which any language can write."""
    return f"{VOTE_HEADER}\n{round_id}\n{subject_digest}\n{choice}\n{signed_at}\n".encode()
