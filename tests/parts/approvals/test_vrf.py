"""ECVRF-EDWARDS25519-SHA512-TAI against the vectors of RFC 9381, appendix B.3, and against modified proofs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.base.signing import SigningKey
from toolpost.parts.approvals import vrf

VECTORS = [
    pytest.param(
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "8657106690b5526245a92b003bb079ccd1a92130477671f6fc01ad16f26f723f26f8a57ccaed74ee1b190bed1f479d97"
        "27d2d0f9b005a6e456a35d4fb0daab1268a1b0db10836d9826a528ca76567805",
        "90cf1df3b703cce59e2a35b925d411164068269d7b2d29f3301c03dd757876ff"
        "66b71dda49d2de59d03450451af026798e8f81cd2e333de5cdf4f3e140fdd8ae",
        id="example 16",
    ),
    pytest.param(
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "f3141cd382dc42909d19ec5110469e4feae18300e94f304590abdced48aed5933bf0864a62558b3ed7f2fea45c92a465"
        "301b3bbf5e3e54ddf2d935be3b67926da3ef39226bbc355bdc9850112c8f4b02",
        "eb4440665d3891d668e7e0fcaf587f1b4bd7fbfe99d0eb2211ccec90496310eb"
        "5e33821bc613efb94db5e5b54c70a848a0bef4553a41befc57663b56373a5031",
        id="example 17",
    ),
    pytest.param(
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "9bc0f79119cc5604bf02d23b4caede71393cedfbb191434dd016d30177ccbf8096bb474e53895c362d8628ee9f9ea3c0"
        "e52c7a5c691b6c18c9979866568add7a2d41b00b05081ed0f58ee5e31b3a970e",
        "645427e5d00c62a23fb703732fa5d892940935942101e456ecca7bb217c61c45"
        "2118fec1219202a0edcf038bb6373241578be7217ba85a2687f7a0310b2df19f",
        id="example 18",
    ),
]
KEY = bytes(range(32))
PUBLIC = vrf.public_key_of(KEY)


@pytest.mark.parametrize(("private", "public", "alpha", "proof", "output"), VECTORS)
def test_the_vectors_of_the_rfc(private: str, public: str, alpha: str, proof: str, output: str) -> None:
    key, message = bytes.fromhex(private), bytes.fromhex(alpha)

    assert vrf.public_key_of(key).hex() == public
    evaluation = vrf.evaluate(key, message)
    assert evaluation.proof.hex() == proof
    assert evaluation.output.hex() == output
    verified = vrf.verify(bytes.fromhex(public), message, bytes.fromhex(proof))
    assert verified is not None
    assert verified.hex() == output


def test_the_public_key_is_the_one_of_ed25519() -> None:
    assert SigningKey(KEY).public == PUBLIC


def test_every_flipped_bit_of_a_proof_is_rejected() -> None:
    proof = vrf.evaluate(KEY, b"input").proof

    for bit in range(len(proof) * 8):
        changed = bytearray(proof)
        changed[bit // 8] ^= 1 << bit % 8
        assert vrf.verify(PUBLIC, b"input", bytes(changed)) is None, bit


@given(key=st.binary(min_size=32, max_size=32), alpha=st.binary(max_size=200), other=st.binary(max_size=200))
def test_a_proof_is_valid_for_its_input_and_key_alone(key: bytes, alpha: bytes, other: bytes) -> None:
    evaluation = vrf.evaluate(key, alpha)
    public = vrf.public_key_of(key)

    assert vrf.verify(public, alpha, evaluation.proof) == evaluation.output
    assert other == alpha or vrf.verify(public, other, evaluation.proof) is None
    assert key == KEY or vrf.verify(PUBLIC, alpha, evaluation.proof) is None


@given(public=st.binary(max_size=64), proof=st.binary(max_size=100))
def test_garbage_is_rejected_without_an_error(public: bytes, proof: bytes) -> None:
    assert vrf.verify(public, b"", proof) is None
    assert vrf.verify(PUBLIC, b"", (proof * 80)[:80]) is None
    assert vrf.verify((public * 32)[:32], b"", vrf.evaluate(KEY, b"").proof) is None


@pytest.mark.parametrize("gamma", [bytes(32), b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_points_of_small_order_are_rejected(gamma: bytes) -> None:
    assert vrf.verify(PUBLIC, b"", gamma + vrf.evaluate(KEY, b"").proof[32:]) is None
    assert vrf.verify(gamma, b"", vrf.evaluate(KEY, b"").proof) is None


def test_a_response_is_smaller_than_the_order() -> None:
    """Adding the order to the response gives another encoding of the same proof: an output has one proof."""
    proof = vrf.evaluate(KEY, b"input").proof
    order = 2**252 + 27742317777372353535851937790883648493
    response = int.from_bytes(proof[48:], "little") + order

    assert vrf.verify(PUBLIC, b"input", proof[:48] + response.to_bytes(32, "little")) is None


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_another_length_is_an_error(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        vrf.evaluate(bytes(length), b"")
