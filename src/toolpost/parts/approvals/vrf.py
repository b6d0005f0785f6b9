"""ECVRF-EDWARDS25519-SHA512-TAI (RFC 9381): a hash that only the holder of a key can compute, and anyone can verify.

All curve arithmetic is libsodium's, through PyNaCl. libsodium multiplies only points of the prime-order subgroup, so a key or a
`Gamma` with a component of small order is rejected, which is stricter than the RFC: no honest prover makes one.
"""

import hmac
from hashlib import sha512
from typing import Final, NamedTuple

from nacl import bindings as sodium
from nacl.exceptions import CryptoError

KEY_BYTES: Final = 32
PROOF_BYTES: Final = 80

_SUITE: Final = b"\x03"
_POINT: Final = 32
_CHALLENGE: Final = 16
_P: Final = 2**255 - 19
_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_ERRORS: Final = (CryptoError, RuntimeError, TypeError, ValueError)


class Evaluation(NamedTuple):
    """An output, which is uniform to everyone without the key, and the proof that it is the right one."""

    output: bytes
    proof: bytes


def public_key_of(private: bytes) -> bytes:
    """Return the public key, which is the Ed25519 public key of the same 32 bytes of seed."""
    return _expand(private)[2]


def evaluate(private: bytes, alpha: bytes) -> Evaluation:
    """Compute the output of `alpha` and prove it; the same for the same key and input. Raises ValueError for a bad key."""
    scalar, prefix, public = _expand(private)
    point = _encode_to_curve(public, alpha)
    gamma = sodium.crypto_scalarmult_ed25519_noclamp(scalar, point)
    # RFC 8032's nonce: it depends on the key and the point alone, so the proof is deterministic.
    nonce = sodium.crypto_core_ed25519_scalar_reduce(sha512(prefix + point).digest())
    challenge = _challenge(
        public,
        point,
        gamma,
        sodium.crypto_scalarmult_ed25519_base_noclamp(nonce),
        sodium.crypto_scalarmult_ed25519_noclamp(nonce, point),
    )
    response = sodium.crypto_core_ed25519_scalar_add(
        # Reduced first: a clamped scalar exceeds the order.
        nonce,
        sodium.crypto_core_ed25519_scalar_mul(
            _scalar_of(challenge), sodium.crypto_core_ed25519_scalar_reduce(scalar + bytes(32))
        ),
    )
    return Evaluation(_output_of(gamma), gamma + challenge + response)


def verify(public: bytes, alpha: bytes, proof: bytes) -> bytes | None:
    """Return the output that the proof proves; None for a proof, or a public key, that is not valid."""
    if len(public) != KEY_BYTES or len(proof) != PROOF_BYTES:
        return None
    gamma, challenge, response = proof[:_POINT], proof[_POINT : _POINT + _CHALLENGE], proof[_POINT + _CHALLENGE :]
    if int.from_bytes(response, "little") >= _ORDER:
        return None
    try:
        if not (sodium.crypto_core_ed25519_is_valid_point(public) and sodium.crypto_core_ed25519_is_valid_point(gamma)):
            return None
        point = _encode_to_curve(public, alpha)
        scalar = _scalar_of(challenge)
        times_base = sodium.crypto_core_ed25519_sub(
            sodium.crypto_scalarmult_ed25519_base_noclamp(response),
            sodium.crypto_scalarmult_ed25519_noclamp(scalar, public),
        )
        times_point = sodium.crypto_core_ed25519_sub(
            sodium.crypto_scalarmult_ed25519_noclamp(response, point),
            sodium.crypto_scalarmult_ed25519_noclamp(scalar, gamma),
        )
    except _ERRORS:
        # libsodium refuses a product that is the identity: a challenge or a response of zero, which no honest proof has.
        return None
    if not hmac.compare_digest(challenge, _challenge(public, point, gamma, times_base, times_point)):
        return None
    return _output_of(gamma)


def _expand(private: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the secret scalar, the prefix of nonces, and the public key."""
    if len(private) != KEY_BYTES:
        raise ValueError(f"a private key has {KEY_BYTES} bytes")
    digest = sha512(private).digest()
    # Clamped as in RFC 8032: a multiple of the cofactor, with the highest bit set.
    scalar = bytes([digest[0] & 248, *digest[1:31], digest[31] & 127 | 64])
    return scalar, digest[32:], sodium.crypto_scalarmult_ed25519_base_noclamp(scalar)


def _encode_to_curve(public: bytes, alpha: bytes) -> bytes:
    """Hash to a point by try and increment (section 5.4.1.1); half of all hashes are no point."""
    for counter in range(256):
        candidate = sha512(_SUITE + b"\x01" + public + alpha + bytes([counter, 0])).digest()[:_POINT]
        if _is_canonical(candidate):
            try:
                return _times_cofactor(candidate)
            except _ERRORS:
                continue
    raise ValueError("no point was found for this input")  # one input in 2**256


def _is_canonical(point: bytes) -> bool:
    # libsodium's addition reduces a y that is too large, where RFC 8032 rejects it.
    y = int.from_bytes(point, "little") & (2**255 - 1)
    return 1 < y < _P - 1


def _times_cofactor(point: bytes) -> bytes:
    # By doubling: the multiplication of libsodium takes no point outside the subgroup, and this is how one gets into it.
    for _ in range(3):
        point = sodium.crypto_core_ed25519_add(point, point)
    if not sodium.crypto_core_ed25519_is_valid_point(point):
        raise ValueError("a point of small order")
    return point


def _challenge(*points: bytes) -> bytes:
    # Section 5.4.3: over all five points, the public key first.
    return sha512(_SUITE + b"\x02" + b"".join(points) + b"\x00").digest()[:_CHALLENGE]


def _scalar_of(challenge: bytes) -> bytes:
    return challenge + bytes(_POINT - _CHALLENGE)


def _output_of(gamma: bytes) -> bytes:
    # Section 5.2: times the cofactor, so that points which differ by one of small order have one output.
    return sha512(_SUITE + b"\x03" + _times_cofactor(gamma) + b"\x00").digest()
