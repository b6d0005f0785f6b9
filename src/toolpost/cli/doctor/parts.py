"""The checks of parts, whose own failures are findings: one part must not hide what the others have found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from toolpost.contracts.errors import ToolpostError
from toolpost.host.doctor import PartDoctor
from toolpost.manifest import (
    BadManifest,
    Command,
    InstalledPart,
    Part,
    bundled_parts,
    describe,
    installed_parts,
    resolve,
)
from toolpost.settings import Config
from toolpost.store import Store
from toolpost.store.part_migrations import check_part
from toolpost.terminal import Diagnosis, Group, problem

Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class CheckedDoctor:
    """The doctor of one part. What it raises, or returns by mistake, is kept in `problems`."""

    part: str
    doctor: PartDoctor
    problems: list[Diagnosis] = field(default_factory=list)

    def names(self, config: Config) -> Sequence[str]:
        """Return the names that can be checked alone; none if the doctor fails."""
        try:
            return _expect(self.doctor.names(config), str)
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            self._keep("names", error)
            return ()

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Return the findings about the part; none if the doctor fails."""
        try:
            return _expect(await self.doctor.check_setup(config), Diagnosis)
        except Exception as error:  # noqa: BLE001
            self._keep("check_setup", error)
            return ()

    async def check(self, config: Config, names: Sequence[str]) -> Sequence[Group]:
        """Return a group for each of these names; none if the doctor fails."""
        try:
            return _expect(await self.doctor.check(config, names), Group)
        except Exception as error:  # noqa: BLE001
            self._keep("check", error)
            return ()

    def without_faults(self, config: Config) -> Config:
        """Return the configuration without what the doctor reports; unchanged if it fails."""
        try:
            return self.doctor.without_faults(config)
        except Exception as error:  # noqa: BLE001
            self._keep("without_faults", error)
            return config

    def _keep(self, method: str, error: Exception) -> None:
        self.problems.append(_make_problem(self.part, f"its doctor failed in `{method}`", error))


def _expect(found: object, kind: type[Kind]) -> Sequence[Kind]:
    """Return a sequence of these; raises `BadManifest` for anything else."""
    wrong = found if not isinstance(found, list | tuple) else next((x for x in found if not isinstance(x, kind)), None)
    if wrong is not None or found is None:
        raise BadManifest(f"it returned {describe(wrong)}, not a list of {kind.__name__}")
    return found  # type: ignore[return-value]


def _make_problem(part: str, what: str, error: Exception) -> Diagnosis:
    """Make a finding that names the part."""
    if isinstance(error, ToolpostError):
        return problem("part", f"the part `{part}`: {what}: {error.message}", hint=error.hint)
    why = str(error) if isinstance(error, BadManifest) else f"{type(error).__name__}: {error}"
    return problem("part", f"the part `{part}`: {what}: {why}")


def load_doctors(config: Config) -> tuple[list[CheckedDoctor], list[Diagnosis]]:
    """Load the checks of parts; with a finding for each that cannot be loaded, but for parts that are reported themselves."""
    doctors: list[CheckedDoctor] = []
    problems: list[Diagnosis] = []
    for part in _load_parts(config):
        if part.doctor is None:
            continue
        try:
            doctor = resolve(part.doctor)()
            if not isinstance(doctor, PartDoctor):
                raise BadManifest(f"`{part.doctor}` made {describe(doctor)}, not a PartDoctor")
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            problems.append(_make_problem(part.name, "its doctor cannot be loaded", error))
        else:
            doctors.append(CheckedDoctor(part=part.name, doctor=doctor))
    return doctors, problems


def check_commands(known: Mapping[str, Command]) -> list[Diagnosis]:
    """Report the commands of installed parts that cannot be used, because Toolpost has a command of their name."""
    found: list[Diagnosis] = []
    for entry in installed_parts():
        part = _load(entry)
        for name in part.commands if part is not None else ():
            if name in known:
                text = (
                    f"the part `{entry.name}`: its command `{name}` is left out, because Toolpost has one of this name"
                )
                found.append(problem("part", text, hint="give it another name"))
    return found


async def check_tables(config: Config, store: Store) -> list[Diagnosis]:
    """Report parts whose migrations are not those by which their tables in the store were made."""
    found: list[Diagnosis] = []
    for part in _load_parts(config):
        if part.migrations is None:
            continue
        try:
            await check_part(store, config.store_url, part.name, part.migrations)
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            found.append(_make_problem(part.name, "its tables cannot be used", error))
    return found


def _load_parts(config: Config) -> list[Part]:
    """Load the parts that a gateway opens. One that cannot be loaded is reported with the plugins."""
    found = [*bundled_parts()]
    for entry in installed_parts() if config.plugins.installed else ():
        if entry.name not in config.plugins.disable and (part := _load(entry)) is not None:
            found.append(part)
    return found


def _load(entry: InstalledPart) -> Part | None:
    try:
        return entry.load()
    except Exception:  # noqa: BLE001 (a part may raise anything)
        return None
