"""Agent skills as clients and servers list them (SEP-2640): their URIs, and the rules for valid entries.

A skill belongs to one server, and two servers may use the same URI. So it is listed with the name of its plugin or server in
front: `skill://refunds/SKILL.md` of the server `desk` is `skill://desk/refunds/SKILL.md`. What follows the name is the server's
own path, or its whole URI if that has another scheme: `skill://desk/git://repository/refunds/SKILL.md`.
"""

import re
from typing import Any, Final

from toolpost.base.ids import META_KEY, JsonObject

EXTENSION: Final = "io.modelcontextprotocol/skills"
SCHEME: Final = "skill://"
MANIFEST: Final = "SKILL.md"

FILES_LIMIT: Final = 512
BYTES_LIMIT: Final = 16 * 1024 * 1024
"""What every host of the extension takes of one skill."""
URI_LIMIT: Final = 2_048

DYNAMIC: Final = "dynamic"
"""In place of the files of a skill that is made anew for each reader."""

_OTHER_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def qualify_skill_uri(server: str, uri: str) -> str:
    """Return the URI that clients see for a server's own."""
    return f"{SCHEME}{server}/{uri.removeprefix(SCHEME)}"


def split_skill_uri(uri: str) -> tuple[str, str] | None:
    """Return the first part of a `skill://` URI, and what is the own URI if that part is a server's name; None for other URIs."""
    if not uri.startswith(SCHEME):
        return None
    server, _, own = uri.removeprefix(SCHEME).partition("/")
    return server, own if _OTHER_SCHEME.match(own) else f"{SCHEME}{own}"


def qualify_entry(server: str, entry: JsonObject) -> JsonObject:
    """Return a server's entry as clients see it: with the server in its URIs and in its `_meta`."""
    files = entry["resources"]
    if files != DYNAMIC:
        files = [file | {"uri": qualify_skill_uri(server, file["uri"])} for file in files]
    return attribute(server, entry | {"uri": qualify_skill_uri(server, entry["uri"]), "resources": files})


def attribute(owner: str, entry: JsonObject) -> JsonObject:
    """Return an entry with the name of its plugin or server, which no other source can write there."""
    meta = entry.get("_meta")
    return entry | {"_meta": (meta if isinstance(meta, dict) else {}) | {META_KEY: {"server": owner}}}


def find_fault(entry: JsonObject) -> str | None:
    """Return what is wrong with a server's entry, because of which no host would load the skill; None if nothing is."""
    uri, frontmatter, files = entry.get("uri"), entry.get("frontmatter"), entry.get("resources")
    if not isinstance(uri, str) or not uri.endswith(f"/{MANIFEST}") or len(uri) > URI_LIMIT:
        return f"its `uri` is not that of a {MANIFEST}, or too long"
    if not isinstance(frontmatter, dict) or not isinstance(frontmatter.get("description"), str):
        return "its `frontmatter` has no `description`"
    if frontmatter.get("name") != uri.split("/")[-2]:
        return "the folder in its `uri` has not the `name` of its `frontmatter`"
    return None if files == DYNAMIC else _find_fault_of_files(uri, files)


def _find_fault_of_files(uri: str, files: Any) -> str | None:
    if not isinstance(files, list) or len(files) > FILES_LIMIT:
        return f'its `resources` are neither "{DYNAMIC}" nor a list of {FILES_LIMIT} files at most'
    root, size, found = uri.removesuffix(MANIFEST), 0, set()
    for file in files:
        if not isinstance(file, dict) or not isinstance(its := file.get("uri"), str) or not its.startswith(root):
            return "one of its `resources` is outside of its folder"
        if not isinstance(digest := file.get("digest"), str) or not _DIGEST.fullmatch(digest):
            return "one of its `resources` has no SHA-256 digest"
        if not isinstance(length := file.get("size"), int) or isinstance(length, bool) or length < 0:
            return "one of its `resources` has no size"
        size += length
        found.add(its)
    if len(found) < len(files) or uri not in found:
        return f"its `resources` have a file twice, or no {MANIFEST}"
    return f"its files have more than {BYTES_LIMIT:,} bytes together" if size > BYTES_LIMIT else None
