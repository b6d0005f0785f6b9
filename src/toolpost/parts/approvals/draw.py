"""Voters drawn from a pool, verifiably at random.

The input of the function is the digest of the call. Its output orders the pool: a voter comes the earlier the smaller
SHA-256(output + name) is, and the first so many are drawn. The same call gets the same voters, and the proof, which is shown with
the round, lets anyone repeat the draw. A requester who varies the arguments gets other voters, but leaves a round each time, and
cannot know them before: the key is not the one that `vrf_eval` uses for everyone.
"""

from dataclasses import dataclass
from hashlib import sha256

from toolpost.base import JsonObject


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Who was drawn, and the proof."""

    voters: tuple[str, ...]
    shown: JsonObject | None = None
    """The proof, for people and programs; None where all were taken."""


def order(pool: tuple[str, ...], output: bytes) -> tuple[str, ...]:
    """Order a pool by an output of the function."""
    return tuple(sorted(pool, key=lambda name: sha256(output + name.encode()).digest()))


def draw(private: bytes, alpha: bytes, pool: tuple[str, ...], count: int) -> Draw:
    """Draw `count` of a pool for an input. Needs PyNaCl."""
    from toolpost.parts.approvals import vrf

    found = vrf.evaluate(private, alpha)
    drawn = order(pool, found.output)[:count]
    shown = {
        "pool": list(pool),
        "input_hex": alpha.hex(),
        "proof_hex": found.proof.hex(),
        "public_key_hex": vrf.public_key_of(private).hex(),
    }
    return Draw(voters=tuple(name for name in pool if name in drawn), shown=shown)
