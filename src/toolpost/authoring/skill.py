"""Agent skills of a plugin: folders with a `SKILL.md`, served as the extension `io.modelcontextprotocol/skills` says (SEP-2640).

Every file of a skill is a resource, `skill://PLUGIN/NAME/SKILL.md` and beside it. Which files there are is found once; what they
hold is read whenever a client asks, so that digests are always those of what would be sent.
"""

import hashlib
import mimetypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from toolpost.authoring.resource import Resource
from toolpost.base.ids import JsonObject
from toolpost.contracts.skills import BYTES_LIMIT, FILES_LIMIT, MANIFEST

_NAME: Final = re.compile(r"(?=.{1,64}$)[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONTMATTER: Final = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Skill:
    """A skill, and where its files are."""

    uri: str
    """The URI of its `SKILL.md`."""
    files: Sequence[tuple[str, Path]]
    """The URI and the path of every file, `SKILL.md` first."""

    def describe(self) -> JsonObject:
        """Return its entry in `skills/list`; reads every file."""
        resources = [_describe_file(uri, path.read_bytes()) for uri, path in self.files]
        return {"uri": self.uri, "frontmatter": read_frontmatter(self.files[0][1]), "resources": resources}


@dataclass(frozen=True, kw_only=True, eq=False)
class SkillFile(Resource):
    """One file of a skill."""

    skill: Skill


def make_skills(plugin: str, folder: Path) -> list[SkillFile]:
    """Return the files of the skills in a folder, or of the one that it is itself; raise TypeError if there is none."""
    if not folder.is_dir():
        raise TypeError(f"`{folder}` is no folder")
    roots = [folder] if (folder / MANIFEST).is_file() else sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    if not roots:
        raise TypeError(f"`{folder}` has no skills: neither it nor a folder in it has a {MANIFEST}")
    return [file for root in roots for file in _make_skill(plugin, root)]


def _make_skill(plugin: str, root: Path) -> Iterator[SkillFile]:
    frontmatter, name = read_frontmatter(root / MANIFEST), root.resolve().name
    if frontmatter.get("name") != name or not _NAME.fullmatch(name):
        raise TypeError(
            f"`{root / MANIFEST}`: its `name` must be the name of its folder, in lower-case letters, digits and single `-`"
        )
    if not isinstance(frontmatter.get("description"), str):
        raise TypeError(f"`{root / MANIFEST}` has no `description`, by which a model decides when to use it")
    # A link may lead anywhere, and what it leads to may not be meant for clients.
    found = [path for path in root.rglob("*") if path.is_file() and path.resolve().is_relative_to(root.resolve())]
    paths = [root / MANIFEST, *sorted(path for path in found if path != root / MANIFEST)]
    if len(paths) > FILES_LIMIT or sum(path.stat().st_size for path in paths) > BYTES_LIMIT:
        raise TypeError(f"`{root}` is too large: clients take {FILES_LIMIT} files and 16 MiB of a skill")
    base = f"skill://{plugin}/{name}/"
    files = [(base + quote(path.relative_to(root).as_posix()), path) for path in paths]
    skill = Skill(uri=files[0][0], files=files)
    for uri, path in files:
        is_manifest = path is paths[0]
        yield SkillFile(
            skill=skill,
            function=path.read_bytes,
            uri=uri,
            name=name if is_manifest else path.relative_to(root).as_posix(),
            description=frontmatter["description"] if is_manifest else "",
            mime_type="text/markdown" if path.suffix == ".md" else mimetypes.guess_type(path.name)[0] or _guess(path),
        )


def read_frontmatter(path: Path) -> JsonObject:
    """Return what a `SKILL.md` says about itself; raise TypeError if it has no frontmatter, or none that can be read."""
    import yaml

    class FrontmatterLoader(yaml.SafeLoader):
        """Dates stay text, since JSON has none."""

        yaml_implicit_resolvers = {  # noqa: RUF012 (as its base has it)
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    found = _FRONTMATTER.match(path.read_text(encoding="utf-8"))
    try:
        read: Any = yaml.load(found[1], Loader=FrontmatterLoader) if found else None  # noqa: S506 (a subclass of the safe one)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise TypeError(f"`{path}`: its frontmatter is not YAML: {error}") from error
    if not isinstance(read, dict):
        raise TypeError(f"`{path}` does not begin with frontmatter: `---`, `name: …`, `description: …`, `---`")
    return read


def _describe_file(uri: str, content: bytes) -> JsonObject:
    return {"uri": uri, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _guess(path: Path) -> str:
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
