"""The skills of a server (SEP-2640), held to their lock or pin.

The promise of a skill is its frontmatter and the digest of each of its files. They are compared whenever the server lists its
skills or is asked for one. A quarantined skill is not listed, and its files are not read; with `enforce`, a file is passed on
only if it has the digest that the compared entry has. Which servers are asked is decided in `relay`.
"""

import base64
import binascii
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from anyio import to_thread

from toolpost.base import Json, JsonObject, PluginName, ToolName, event
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.compatibility.definition import define_skill
from toolpost.contracts.errors import ContractChanged, UpstreamUnavailable
from toolpost.contracts.findings import DefinitionScan, Finding, scan_definition
from toolpost.contracts.skills import DYNAMIC, MANIFEST, find_fault
from toolpost.providers.contract_watch import ContractStatus, ContractWatch, Mode
from toolpost.providers.quarantine import CheckedText, check_text, log_quarantined
from toolpost.upstreams.lists import Slices

_log = logging.getLogger("toolpost.providers")

SKILLS_LIMIT: Final = 1_000
"""How many skills of a server are taken."""


@dataclass(frozen=True, kw_only=True)
class _ListedSkill:
    entry: JsonObject
    definition: Definition
    scan: DefinitionScan
    checked: CheckedText

    @property
    def root(self) -> str:
        return str(self.entry["uri"]).removesuffix(MANIFEST)

    @property
    def digests(self) -> Mapping[str, str] | None:
        """The digests of its files, by URI; None if it has no fixed content."""
        files = self.entry["resources"]
        return None if files == DYNAMIC else {file["uri"]: file["digest"] for file in files}


class ListedSkills:
    """The skills of one server, as it last described them, under its own URIs."""

    def __init__(self, server: PluginName, pin_name: PluginName, watch: ContractWatch, mode: Mode) -> None:
        self._server = server
        self._pin_name = pin_name
        self._watch = watch
        self._mode: Mode = mode
        self._skills: dict[str, _ListedSkill] = {}
        self._is_known = False
        self._changing = anyio.Lock()

    @property
    def has_to_be_listed(self) -> bool:
        """Whether a file may not be read before the skills were listed."""
        return self._mode == "enforce" and not self._is_known

    @property
    def shown(self) -> list[JsonObject]:
        """The entries of all skills that are not quarantined."""
        return [skill.entry for skill in self._skills.values() if not skill.checked.is_quarantined]

    @property
    def definitions(self) -> dict[ToolName, Definition]:
        """The definitions of all skills, also of quarantined ones."""
        return {ToolName(skill.definition.name): skill.definition for skill in self._skills.values()}

    @property
    def statuses(self) -> dict[ToolName, ContractStatus]:
        """The skills that differ from their lock or pin."""
        found = ((skill.definition.name, skill.checked.status) for skill in self._skills.values())
        return {ToolName(name): status for name, status in found if status is not None}

    @property
    def findings(self) -> dict[ToolName, Sequence[Finding]]:
        """The findings in the skills that have some, by their names."""
        found = ((skill.definition.name, skill.checked.findings) for skill in self._skills.values())
        return {ToolName(name): findings for name, findings in found if findings}

    def is_quarantined(self, name: str) -> bool:
        return any(skill.definition.name == name and skill.checked.is_quarantined for skill in self._skills.values())

    async def take_all(self, entries: Iterable[JsonObject]) -> None:
        """Take the server's list, and compare each skill with its lock or pin. Invalid entries are left out, and logged."""
        async with self._changing:
            taken: dict[str, JsonObject] = {}
            slices = Slices()
            for entry in entries:
                fault = find_fault(entry)
                if fault is None and (entry["uri"] in taken or len(taken) == SKILLS_LIMIT):
                    fault = f"it is listed twice, or after {SKILLS_LIMIT:,} others"
                if fault is not None:
                    uri = str(entry.get("uri"))[:200]
                    event(_log, logging.WARNING, "skill left out", server=self._server, skill=uri, reason=fault)
                else:
                    taken[entry["uri"]] = entry
                await slices.give_way()
            self._skills = await self._check_all(taken)
            self._watch.begin_skills(self._pin_name, self.definitions.keys())
            self._is_known = True

    async def take_one(self, uri: str, entry: Json) -> JsonObject | None:
        """Take what the server says about one skill; return None if it is quarantined. Raises `UpstreamUnavailable`."""
        fault = find_fault(entry) if isinstance(entry, dict) else "it is no object"
        if fault is None and entry["uri"] != uri:
            fault = "it belongs to another skill"
        async with self._changing:
            if fault is None and uri not in self._skills and len(self._skills) >= SKILLS_LIMIT:
                fault = f"the server has more than {SKILLS_LIMIT:,} skills"
            if fault is not None:
                raise UpstreamUnavailable(f"The server's entry of the skill is invalid: {fault}")
            checked = (await self._check_all({uri: entry})).get(uri)
            if checked is None:
                raise UpstreamUnavailable(f"The server renames its skills too often: {uri[:200]} is left out")
            self._skills = {**self._skills, uri: checked}
        return None if checked.checked.is_quarantined else checked.entry

    async def recheck(self) -> None:
        """Compare all skills again, after a judgement or a change of the lock."""
        async with self._changing:
            self._skills = await self._check_all({uri: skill.entry for uri, skill in self._skills.items()})

    def is_quarantined_file(self, uri: str) -> bool:
        """Whether a file or folder belongs to a quarantined skill."""
        skill = self._find(f"{uri}/")
        return skill is not None and skill.checked.is_quarantined

    def check_read(self, uri: str, result: JsonObject) -> None:
        """Raise `ContractChanged` if a file of a skill is not what was compared."""
        skill = self._find(uri)
        if self._mode != "enforce" or skill is None or skill.digests is None:
            return
        if skill.digests.get(uri) != _digest_of(result):
            # The server may have changed the skill since: it is listed again before the next read.
            self._is_known = False
            raise ContractChanged(
                f"The file {uri[:200]} of the server `{self._server}` differs from the list of its skill.",
                hint="ask for the skill again with skills/get; if it has changed, an operator has to accept that",
            )

    def _find(self, uri: str) -> _ListedSkill | None:
        """Return the innermost skill that has a file."""
        having = (skill for skill in self._skills.values() if uri.startswith(skill.root))
        return max(having, key=lambda skill: len(skill.root), default=None)

    async def _check_all(self, entries: Mapping[str, JsonObject]) -> dict[str, _ListedSkill]:
        """Compare skills; those with new names are left out where their server renames them too often."""
        slices = Slices()
        found: dict[str, _ListedSkill] = {}
        for uri, entry in entries.items():
            await slices.give_way()
            before, definition = self._skills.get(uri), define_skill(self._server, entry)
            if not self._watch.may_hold(self._pin_name, definition):
                continue
            if before is not None and before.definition == definition:
                scan = before.scan
            else:
                # In a thread: a server decides how long its texts are.
                scan = await to_thread.run_sync(scan_definition, definition)
            checked = await check_text(definition, scan, self._watch, self._pin_name, self._mode)
            if checked.findings and checked.is_quarantined and (before is None or before.scan is not scan):
                log_quarantined("a skill is", self._server, definition, checked.findings)
            found[uri] = _ListedSkill(entry=entry, definition=definition, scan=scan, checked=checked)
        return found


def _digest_of(result: JsonObject) -> str | None:
    """Return the digest of what a `resources/read` returned; None if that is not one file."""
    contents = result.get("contents")
    if not isinstance(contents, list) or len(contents) != 1 or not isinstance(item := contents[0], dict):
        return None
    text, blob = item.get("text"), item.get("blob")
    if not isinstance(text if blob is None else blob, str):
        return None
    try:
        content = str(text).encode() if blob is None else base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        return None
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
