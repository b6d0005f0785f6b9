"""What is voted on, and the bytes that a vote signs.

The subject of a call names the tool, its contract, the caller and the arguments, which are in it twice: `arguments` is the digest
of what voters see; `exact` is keyed with a secret of the store, and covers what is hidden from voters as well, so that it cannot
be guessed by trying values.
"""

import hmac
import secrets
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.contracts.digest import canonical_digest, quick_digest
from toolpost.parts.approvals.rounds import Choice, RoundId

VOTE_HEADER = "toolpost-vote-v1"

_sorted = msgspec.json.Encoder(order="sorted")


def digest_exactly(secret: bytes, arguments: JsonObject) -> str:
    """Digest all of the arguments with a key."""
    return "hmac-sha256:" + hmac.new(secret, _sorted.encode(arguments), sha256).hexdigest()


def key_of_call(
    *, tool: str, exact: str, contract: str, caller: str, rule: str, voters: Sequence[str], needed: int
) -> str:
    """Return what two calls have in common that the same approval is for. A rule that was changed asks again."""
    return canonical_digest(["call", tool, exact, contract, caller, rule, sorted(voters), needed])


def subject_of_call(
    *,
    gateway: str,
    tool: str,
    provider: str,
    contract: str,
    caller: str,
    arguments: JsonObject,
    exact: str,
    expires_at: str,
) -> JsonObject:
    """Return the subject of a round on a call; `arguments` are those that voters see."""
    return {
        "kind": "call",
        "gateway": gateway,
        "nonce": secrets.token_hex(16),
        "tool": tool,
        "provider": provider,
        "contract": contract,
        "caller": caller,
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


def message_of_vote(found: RoundId, subject_digest: str, choice: Choice, signed_at: str) -> bytes:
    """Return the bytes that are signed: five lines of text, which any language can write."""
    return f"{VOTE_HEADER}\n{found}\n{subject_digest}\n{choice}\n{signed_at}\n".encode()
