"""Verifies an export of `toolpost trail`: python verify_trail.py FILE [--key PUBLIC_KEY]

This file needs Python 3.8 and nothing else: it imports nothing but the standard library, so that it can be read in one sitting
and run by a person who does not trust the gateway that wrote the export. Toolpost itself computes its hashes with it.

What it checks
- every record hashes to what it says, over all of its fields, its author, and the hash of the record before it;
- the first record continues the session's header, which has the owner and the time of the start;
- what is referred to (calls by decisions, decisions by calls) is there, before it is referred to;
- contents, where they were exported, are what was committed to;
- the records make the Merkle root (RFC 6962) that was sealed, and the seal's Ed25519 signature (RFC 8032) is valid;
- a proof, where the file is one, leads from its record to the sealed root, or from an earlier root to a later one.

What it cannot check: that the public key is the gateway's. Compare it with one that you got another way, or give it with --key.

Formats. Everything that is hashed or signed is JSON with sorted keys, without spaces, in UTF-8, of strings and whole numbers only
(RFC 8785). A record's hash is SHA-256 of its body; a leaf of the tree is the 32 bytes of that hash. A commitment to a content is
SHA-256 of its salt, in bytes, and the content in UTF-8.
"""

import argparse
import base64
import json
import sys
from hashlib import sha256, sha512
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

FORMAT = 1


class Invalid(Exception):
    """The file is not what it claims to be."""


def encode(value: Any) -> bytes:
    """Return the bytes of a value that is hashed or signed."""
    return _ENCODER.encode(value).encode("utf-8")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def hash_of(value: Any) -> str:
    """Return the hash of a header or of a record's body, as hexadecimal digits."""
    return sha256(encode(value)).hexdigest()


def commit(content: str, salt: str) -> str:
    """Return the commitment to a content; without the salt, a short content cannot be found by trying."""
    return sha256(bytes.fromhex(salt) + content.encode("utf-8")).hexdigest()


# The Merkle tree (RFC 6962, section 2.1; verification as in RFC 9162, section 2.1).

EMPTY_ROOT = sha256(b"").digest()


def hash_leaf(data: bytes) -> bytes:
    """Return the hash of a leaf with this content."""
    return sha256(b"\0" + data).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with these children."""
    return sha256(b"\1" + left + right).digest()


def fold(peaks: Sequence[bytes]) -> bytes:
    """Return the root of a tree that consists of these complete subtrees, the largest first."""
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = hash_node(peak, root)
    return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root of the tree of these hashes of leaves."""
    peaks: List[bytes] = []
    for index, leaf in enumerate(leaves):
        node, at = leaf, index
        while at & 1:
            node, at = hash_node(peaks.pop(), node), at >> 1
        peaks.append(node)
    return fold(peaks)


def verifies_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that the leaf with this hash is at this index of the tree."""
    if not 0 <= index < size:
        return False
    at, last, found = index, size - 1, leaf
    for each in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            found = hash_node(each, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = hash_node(found, each)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def verifies_consistency(first: int, second: int, proof: Sequence[bytes], root: bytes, new_root: bytes) -> bool:
    """Whether a proof shows that the tree of `first` leaves with `root` is the beginning of that of `second` with `new_root`."""
    if not 0 < first <= second:
        return False
    if first == second:
        return not proof and root == new_root
    path = [root, *proof] if first & (first - 1) == 0 else list(proof)
    if not path:
        return False
    at, last = first - 1, second - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old = new = path[0]
    for each in path[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            old, new = hash_node(each, old), hash_node(each, new)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            new = hash_node(new, each)
        at, last = at >> 1, last >> 1
    return last == 0 and old == root and new == new_root


# Ed25519 (RFC 8032, section 5.1). Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z. Verification handles no secrets, so
# that it need not take the same time for all of them.

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_Point = Tuple[int, int, int, int]


def _add(p: _Point, q: _Point) -> _Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _P, (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiply(scalar: int, point: _Point) -> _Point:
    found = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            found = _add(found, point)
        point = _add(point, point)
        scalar >>= 1
    return found


def _decode_point(data: bytes) -> Optional[_Point]:
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


_BASE_Y = 4 * pow(5, _P - 2, _P) % _P
_BASE = _decode_point(_BASE_Y.to_bytes(32, "little"))


def verifies_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature is valid; False for a key or a signature that is malformed."""
    if len(public) != 32 or len(signature) != 64 or _BASE is None:
        return False
    key, start = _decode_point(public), _decode_point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or start is None or scalar >= _L:
        return False
    digest = int.from_bytes(sha512(signature[:32] + public + message).digest(), "little") % _L
    left, right = _multiply(scalar, _BASE), _add(start, _multiply(digest, key))
    return (left[0] * right[2] - right[0] * left[2]) % _P == 0 and (left[1] * right[2] - right[1] * left[2]) % _P == 0


# Exports: lines of JSON. `session`, then each `record`, then the `seal` of a session that was finalized; or a single `proof`.


_NAMES = {
    "session": {"line", "header", "hash", "intent", "salt"},
    "record": {"line", "body", "hash", "content", "salt"},
    "seal": {"line", "seal", "signature", "public_key"},
    "proof": {
        *("line", "kind", "session_id", "seq", "record", "record_hash", "first", "first_root", "size", "root", "proof"),
        *("seal", "signature", "public_key"),
    },
}


class Walk:
    """A walk along a session's chain, the oldest record first; raises `Invalid` at the first break."""

    def __init__(self, header: Dict[str, Any], header_hash: str) -> None:
        """Begin with a session's header."""
        if header.get("v") != FORMAT or header.get("kind") != "session":
            raise Invalid("the header is of another format")
        if hash_of(header) != header_hash:
            raise Invalid("the header was changed: its hash does not match")
        self.header = header
        self.start = self.head = header_hash
        self.size = 0
        self.foreign = 0
        """How many references lead to other sessions of the owner: their own exports have what is referred to."""
        self._hashes: List[str] = []
        self._known: Set[str] = set()
        self._decisions: Set[str] = set()
        self._calls: Dict[str, str] = {}

    def follow(self, body: Dict[str, Any], record_hash: str) -> None:
        """Go on over one record."""
        where = "record {}".format(body.get("seq"))
        if body.get("seq") != self.size + 1:
            raise Invalid("record {} is missing: {} comes next".format(self.size + 1, where))
        if body.get("prev") != self.head:
            raise Invalid("{} does not continue the record before it".format(where))
        if body.get("v") != FORMAT or not body.get("author"):
            raise Invalid("{} has another format, or no author".format(where))
        if hash_of(body) != record_hash:
            raise Invalid("{} was changed: its hash does not match".format(where))
        self._check_references(body, where)
        self.size += 1
        self.head = record_hash
        self.note_hash(record_hash)
        if body["kind"] == "thought" and body["type"] == "decision":
            self._decisions.add(record_hash)
        if body["kind"] == "call":
            self._calls[record_hash] = body["call_id"]

    def note_hash(self, record_hash: str) -> None:
        """Take note of a record's hash, for the tree and for references to it."""
        self._hashes.append(record_hash)
        self._known.add(record_hash)

    def _check_references(self, body: Dict[str, Any], where: str) -> None:
        if (
            body["kind"] == "result"
            and body["call"] in self._known
            and self._calls.get(body["call"]) != body["call_id"]
        ):
            raise Invalid("{} is the result of another call than it says".format(where))
        if body["kind"] == "result" and body["call"] not in self._known:
            self.foreign += 1  # the session of the call was sealed while it ran
        if body["kind"] == "call" and body["follows"] is not None and body["follows"] not in self._decisions:
            self.foreign += 1
        if body["kind"] == "thought":
            self.foreign += sum(each not in self._known for each in body["references"])

    def root(self) -> str:
        """Return the Merkle root of the records so far."""
        return root_of(hash_leaf(bytes.fromhex(each)) for each in self._hashes).hex()

    def check_seal(self, seal: Dict[str, Any], signature: str, public: str) -> None:
        """Compare a seal with the records, and verify its signature."""
        check_signature(seal, signature, public)
        expected = {"session": self.header["session"], "owner": self.header["owner"], "start": self.start}
        expected.update(size=self.size, head=self.head, root=self.root())
        for name, value in expected.items():
            if seal.get(name) != value:
                raise Invalid("the seal says {} = {}, and the records make {}".format(name, seal.get(name), value))


def decode_hash(text: str) -> bytes:
    """Decode 64 hexadecimal digits; raises `Invalid` for other ways to write the same bytes."""
    decoded = bytes.fromhex(text)
    if len(decoded) != 32 or decoded.hex() != text:
        raise Invalid("{!r} is not a hash in 64 small hexadecimal digits".format(text[:80]))
    return decoded


def check_signature(seal: Dict[str, Any], signature: str, public: str) -> None:
    """Verify the signature of a seal; raises `Invalid`."""
    if seal.get("v") != FORMAT or seal.get("kind") != "seal":
        raise Invalid("the seal is of another format")
    decoded = base64.b64decode(signature)
    # Several texts in base64 decode to the same bytes: only the usual one is accepted.
    is_usual = base64.b64encode(decoded).decode() == signature
    if not is_usual or not verifies_signature(decode_hash(public), encode(seal), decoded):
        raise Invalid("the signature of the seal is not valid")


def check_proof(proof: Dict[str, Any]) -> str:
    """Verify a proof; return what it proves. Raises `Invalid`."""
    hashes = [decode_hash(each) for each in proof["proof"]]
    root = decode_hash(proof["root"])
    if proof["kind"] == "inclusion":
        body, record_hash = proof.get("record"), proof["record_hash"]
        if body is not None and (hash_of(body) != record_hash or body["seq"] != proof["seq"]):
            raise Invalid("the record was changed: its hash does not match")
        leaf = hash_leaf(decode_hash(record_hash))
        if not verifies_inclusion(leaf, proof["seq"] - 1, proof["size"], hashes, root):
            raise Invalid("the proof does not lead from the record to the root")
        proven = "record {} is in the session {}".format(proof["seq"], proof["session_id"])
    elif proof["kind"] == "consistency":
        first = decode_hash(proof["first_root"])
        if not verifies_consistency(proof["first"], proof["size"], hashes, first, root):
            raise Invalid("the proof does not lead from the earlier root to the later one")
        proven = "the first {} records of the session {} are as they were".format(proof["first"], proof["session_id"])
    else:
        raise Invalid("the proof is of another kind")
    if proof.get("seal") is not None:
        check_signature(proof["seal"], proof["signature"], proof["public_key"])
        if proof["seal"]["root"] != proof["root"] or proof["seal"]["size"] != proof["size"]:
            raise Invalid("the seal belongs to another tree")
        if proof["seal"]["session"] != proof["session_id"]:
            raise Invalid("the seal belongs to another session")
    return proven


def check_export(lines: Iterable[Dict[str, Any]], key: Optional[str] = None) -> Iterator[str]:
    """Verify an export; yield a sentence for each session, seal and proof that is sound. Raises `Invalid` at the first break."""
    walk: Optional[Walk] = None
    contents = 0
    for line in lines:
        what = line.get("line")
        if not line.keys() <= _NAMES.get(str(what), set()):
            # It would not be verified, and could be believed.
            raise Invalid("a line has more than is known: {}".format(sorted(line.keys())))
        if what == "session":
            if walk is not None:
                yield from _end_unsealed(walk, contents, key)
            walk, contents = Walk(line["header"], line["hash"]), 0
            contents += _check_content(line, "intent", line["header"]["intent"], "the header")
        elif what == "record" and walk is not None:
            body = line["body"]
            walk.follow(body, line["hash"])
            if body["kind"] == "thought":
                contents += _check_content(line, "content", body["content"], "record {}".format(body["seq"]))
        elif what == "seal" and walk is not None:
            _check_key(line, key)
            walk.check_seal(line["seal"], line["signature"], line["public_key"])
            yield _describe(walk, contents)
            yield _describe_seal(line)
            walk = None
        elif what == "proof":
            _check_key(line, key)
            yield check_proof(line)
            yield _describe_seal(line)
        else:
            raise Invalid("a line that does not belong here: {}".format(what))
    if walk is not None:
        yield from _end_unsealed(walk, contents, key)


def _end_unsealed(walk: Walk, contents: int, key: Optional[str]) -> Iterator[str]:
    yield _describe(walk, contents)
    if key is not None:
        raise Invalid("the session is not sealed, and so signed by no key")
    yield "not sealed: nothing shows that records are missing at the end"


def _check_key(line: Dict[str, Any], key: Optional[str]) -> None:
    if key is None:
        return
    if line.get("seal") is None:
        # Also where it names the key: without a seal there is no signature that could be verified with it.
        raise Invalid("it is not sealed, and so signed by no key")
    if line.get("public_key") != key.lower():
        raise Invalid("it is signed by the key {}, and not by {}".format(line.get("public_key"), key))


def _check_content(line: Dict[str, Any], name: str, commitment: str, where: str) -> int:
    if name not in line and "salt" not in line:
        return 0
    is_usual = bytes.fromhex(line["salt"]).hex() == line["salt"]
    if not is_usual or commit(line[name], line["salt"]) != commitment:
        raise Invalid("the content of {} was changed".format(where))
    return 1


def _describe_seal(line: Dict[str, Any]) -> str:
    if line.get("seal") is None:
        return "not sealed: compare the root {} with one that you know".format(line["root"])
    return "sealed at {} by the key {}".format(line["seal"]["sealed_at"], line["public_key"])


def _describe(walk: Walk, contents: int) -> str:
    shown = "{} records of the session {} of {} are intact".format(
        walk.size, walk.header["session"], walk.header["owner"]
    )
    if contents:
        shown += ", {} contents are theirs".format(contents)
    if walk.foreign:
        shown += ", {} references lead to other sessions".format(walk.foreign)
    return shown


def read_lines(path: str) -> Iterator[Dict[str, Any]]:
    """Read an export, `-` for standard input. Raises `Invalid` for what is not JSON."""
    file = sys.stdin if path == "-" else open(path, encoding="utf-8")  # noqa: PTH123, SIM115
    with file:
        for number, line in enumerate(file, 1):
            try:
                value = json.loads(line)
            except ValueError:
                raise Invalid("line {} is not JSON".format(number)) from None
            if not isinstance(value, dict):
                raise Invalid("line {} is not an object".format(number))
            yield value


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Verify the files that are named; return 0 if all of them are sound, 1 at the first that is not, 2 if one cannot be read."""
    parser = argparse.ArgumentParser(description="Verify an export or a proof of `toolpost trail`.")
    parser.add_argument("file", nargs="+", help="an export, - for standard input")
    parser.add_argument("--key", help="the public key that must have signed it, as 64 hexadecimal digits")
    given = parser.parse_args(arguments)
    for path in given.file:
        try:
            found = False
            for sentence in check_export(read_lines(path), given.key):
                found = True
                print(sentence)
            if not found:
                raise Invalid("there is nothing in it")
        except Invalid as error:
            print("{}: NOT VALID: {}".format(path, error), file=sys.stderr)
            return 1
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            print("{}: NOT VALID: malformed ({}: {})".format(path, type(error).__name__, error), file=sys.stderr)
            return 1
        except OSError as error:
            print("{}: {}".format(path, error.strerror), file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
