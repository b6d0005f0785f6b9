"""A growing Merkle tree of RFC 6962 (section 2.1), and what its proofs consist of. Hashing and verifying is in `verify_trail`,
which does not import Toolpost.

A leaf is `SHA-256(0x00 || data)`, a node `SHA-256(0x01 || left || right)`. A tree of n leaves splits at the largest power of two
below n, so that a subtree over `2**level` leaves, once it is complete, never changes. Only complete subtrees are stored: every
other hash is made of a few of them. The tree of 7 leaves, for example, has the complete subtrees

    level 2   [0..3]                  nodes are numbered in order, as in a drawing from left to right:
    level 1   [0..1] [2..3] [4..5]    leaf i is 2i, the node above leaves 0 and 1 is 1, the one above 0..3 is 3, …
    level 0   0 1 2 3 4 5 6

and its *peaks* [0..3], [4..5], [6], from which its root follows, and which are all that the next leaf needs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from toolpost.parts.trail.verify_trail import fold, hash_node

HASH_BYTES: Final = 32


class TreeNode(NamedTuple):
    """A complete subtree: the `position`-th one, from the left, over `2**level` leaves."""

    level: int
    position: int

    @property
    def number(self) -> int:
        """Its place among all nodes of the tree, in order; leaves have the even numbers."""
        # In a drawing, the node stands between the two halves of its leaves: at the middle of its range, doubled.
        return ((2 * self.position + 1) << self.level) - 1


class Peaks:
    """The complete subtrees at the right edge of a growing tree, the largest first: its root, and all that a new leaf needs."""

    def __init__(self, size: int = 0, hashes: bytes = b"") -> None:
        """`hashes` are those of the peaks, one after the other, as `encode` returns them."""
        if len(hashes) != size.bit_count() * HASH_BYTES:
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks")
        self.size = size
        self._hashes = [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]

    def append(self, leaf: bytes) -> list[tuple[TreeNode, bytes]]:
        """Add the hash of a leaf; return the nodes above it that it completes, the lowest first."""
        completed: list[tuple[TreeNode, bytes]] = []
        at, node_hash = TreeNode(0, self.size), leaf
        # A right child completes its parent, and that perhaps its own: as when a binary counter carries.
        while at.position & 1:
            at, node_hash = TreeNode(at.level + 1, at.position >> 1), hash_node(self._hashes.pop(), node_hash)
            completed.append((at, node_hash))
        self._hashes.append(node_hash)
        self.size += 1
        return completed

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        return fold(self._hashes)

    def encode(self) -> bytes:
        """Return the hashes of the peaks, to be stored."""
        return b"".join(self._hashes)


Range = tuple[int, int]
"""Leaves from the first to before the second."""


def inclusion_path(index: int, size: int) -> list[Range]:
    """Return what an inclusion proof of a leaf consists of, from the leaf up: the hash of the subtree over each of these ranges.

    Raises IndexError for a leaf that is not in the tree.
    """
    if not 0 <= index < size:
        raise IndexError(f"there is no leaf {index} in a tree of {size}")
    start, end = 0, size
    path: list[Range] = []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
    return path[::-1]


def consistency_path(first: int, second: int) -> list[Range]:
    """Return what the proof consists of that a tree of `first` leaves is the beginning of one of `second`; empty if they are one.

    Raises IndexError for an empty first tree, of which there is nothing to prove, and for one that is larger than the second.
    """
    if not 0 < first <= second:
        raise IndexError(f"a tree of {first} leaves is not the beginning of one of {second}")
    start, end = 0, second
    path: list[Range] = []
    is_known = True  # the root of the first tree is known to the verifier, its right edge is not
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
            is_known = False
    if not is_known:
        path.append((start, end))
    return path[::-1]


def nodes_over(leaves: Range) -> Iterator[TreeNode]:
    """Return the complete subtrees that a subtree over these leaves consists of, the largest first."""
    start, end = leaves
    while start < end:
        level = (end - start).bit_length() - 1
        yield TreeNode(level, start >> level)
        start += 1 << level


def hashes_over(path: Iterable[Range], known: Mapping[int, bytes]) -> list[bytes]:
    """Return the hashes of a proof, given those of complete subtrees by their numbers. Raises KeyError if one is missing."""
    return [fold([known[node.number] for node in nodes_over(leaves)]) for leaves in path]


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)
