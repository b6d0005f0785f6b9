"""Ed25519 signatures."""

import pytest

from toolpost.base.signing import SigningKey, is_signed_by

# RFC 8032, section 7.1, TEST 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_the_vector_of_the_rfc() -> None:
    key = SigningKey(SEED)

    assert key.public == PUBLIC
    assert key.sign(b"\x72") == SIGNATURE
    assert is_signed_by(PUBLIC, b"\x72", SIGNATURE)


@pytest.mark.parametrize("bit", [0, 7, 255, 256, 511])
def test_a_flipped_bit_is_no_signature(bit: int) -> None:
    flipped = bytearray(SIGNATURE)
    flipped[bit // 8] ^= 1 << bit % 8

    assert not is_signed_by(PUBLIC, b"\x72", bytes(flipped))
    assert not is_signed_by(PUBLIC, b"\x73", SIGNATURE)


@pytest.mark.parametrize(("public", "signature"), [(b"", SIGNATURE), (PUBLIC, b""), (PUBLIC[:-1], SIGNATURE)])
def test_what_is_malformed_is_no_signature(public: bytes, signature: bytes) -> None:
    assert not is_signed_by(public, b"\x72", signature)
