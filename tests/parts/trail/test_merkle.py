"""The Merkle tree: the vectors of Certificate Transparency, RFC 6962's own definition, and proofs with one bit flipped."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.parts.trail.merkle import Peaks, consistency_path, hashes_over, inclusion_path
from toolpost.parts.trail.verify_trail import (
    EMPTY_ROOT,
    hash_leaf,
    hash_node,
    root_of,
    verifies_consistency,
    verifies_inclusion,
)

# The inputs and roots of the reference implementation (google/certificate-transparency, merkle_tree_test.cc).
INPUTS = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PATHS = {
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
}
CONSISTENCY = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


def grow(data: list[bytes]) -> tuple[Peaks, dict[int, bytes]]:
    """Add leaves to a tree; return it with all complete subtrees, by number."""
    peaks = Peaks()
    known: dict[int, bytes] = {}
    for index, each in enumerate(data):
        known[2 * index] = hash_leaf(each)
        known |= {node.number: digest for node, digest in peaks.append(hash_leaf(each))}
        peaks = Peaks(peaks.size, peaks.encode())  # as it is stored and read back
    return peaks, known


def define_root(data: list[bytes]) -> bytes:
    """Compute the Merkle Tree Hash as RFC 6962 defines it."""
    if not data:
        return sha256().digest()
    if len(data) == 1:
        return sha256(b"\0" + data[0]).digest()
    k = 1
    while k * 2 < len(data):
        k *= 2
    return sha256(b"\1" + define_root(data[:k]) + define_root(data[k:])).digest()


def test_roots_are_those_of_the_reference_implementation() -> None:
    assert [grow(INPUTS[: size + 1])[0].root.hex() for size in range(8)] == ROOTS
    assert Peaks().root == EMPTY_ROOT == root_of([])
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(("index", "size"), PATHS)
def test_inclusion_proofs_are_those_of_the_reference_implementation(index: int, size: int) -> None:
    _, known = grow(INPUTS[:size])

    assert [each.hex() for each in hashes_over(inclusion_path(index, size), known)] == PATHS[index, size]


@pytest.mark.parametrize(("first", "second"), CONSISTENCY)
def test_consistency_proofs_are_those_of_the_reference_implementation(first: int, second: int) -> None:
    _, known = grow(INPUTS[:second])

    assert [each.hex() for each in hashes_over(consistency_path(first, second), known)] == CONSISTENCY[first, second]


def test_every_leaf_of_every_small_tree_is_proven() -> None:
    data = [bytes([number]) for number in range(33)]
    for size in range(1, 34):
        peaks, known = grow(data[:size])
        assert peaks.root == define_root(data[:size]) == root_of(map(hash_leaf, data[:size]))
        for index in range(size):
            proof = hashes_over(inclusion_path(index, size), known)
            assert verifies_inclusion(hash_leaf(data[index]), index, size, proof, peaks.root)
            assert not verifies_inclusion(hash_leaf(b"other"), index, size, proof, peaks.root)
            assert not any(
                verifies_inclusion(hash_leaf(data[index]), other, size, proof, peaks.root)
                for other in range(size)
                if other != index
            )


def test_every_beginning_of_every_small_tree_is_proven() -> None:
    data = [bytes([number]) for number in range(20)]
    roots = [define_root(data[:size]) for size in range(21)]
    for second in range(1, 21):
        _, known = grow(data[:second])
        for first in range(1, second + 1):
            proof = hashes_over(consistency_path(first, second), known)
            assert verifies_consistency(first, second, proof, roots[first], roots[second])
            assert first == second or not verifies_consistency(first, second, proof, roots[first - 1], roots[second])
            assert not verifies_consistency(first, second, [*proof, roots[1]], roots[first], roots[second])


@given(st.data())
def test_one_flipped_bit_is_found(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 200))
    index = data.draw(st.integers(0, size - 1))
    leaves = [number.to_bytes(2, "big") for number in range(size)]
    peaks, known = grow(leaves)
    proof = hashes_over(inclusion_path(index, size), known)
    at = data.draw(st.integers(0, len(proof) - 1))
    bit = data.draw(st.integers(0, 255))
    flipped = int.from_bytes(proof[at], "big") ^ (1 << bit)
    proof[at] = flipped.to_bytes(32, "big")

    assert not verifies_inclusion(hash_leaf(leaves[index]), index, size, proof, peaks.root)


def test_what_is_not_in_the_tree_cannot_be_asked_for() -> None:
    for index, size in ((-1, 3), (3, 3), (0, 0)):
        with pytest.raises(IndexError):
            inclusion_path(index, size)
    for first, second in ((0, 3), (4, 3)):
        with pytest.raises(IndexError):
            consistency_path(first, second)
    assert not verifies_consistency(0, 3, [], EMPTY_ROOT, hash_node(b"", b""))
    with pytest.raises(ValueError, match="2 peaks"):
        Peaks(3, b"x" * 32)


def test_a_proof_for_one_of_a_million_is_short() -> None:
    assert max(len(inclusion_path(index, 1_000_000)) for index in (0, 1, 524_287, 524_288, 999_999)) == 20
