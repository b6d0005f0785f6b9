"""Ed25519 signatures (RFC 8032), which any Ed25519 library can verify.

The gateways of one store share their keys: `SigningKey(await store.keys.of("signing:NAME"))`.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class SigningKey:
    """A private key, made from its 32 bytes of seed."""

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()
        """The public key, 32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes; the same for the same message."""
        return self._private.sign(message)


def is_signed_by(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is valid; False for a public key or a signature that is malformed."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
