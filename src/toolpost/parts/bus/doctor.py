"""What `toolpost doctor` says of the bus: whether the beads tracker is kept in step."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from toolpost.cli.doctor.findings import Finding, note, ok, problem
from toolpost.parts.base import PartDoctor
from toolpost.parts.bus import beads
from toolpost.parts.bus.settings import BUS
from toolpost.settings import Config


class BusDoctor(PartDoctor):
    """Looks for `bd`."""

    async def check_setup(self, config: Config) -> Sequence[Finding]:
        """Find the tracker."""
        return [_beads(config)]


def _beads(config: Config) -> Finding:
    chosen = BUS.of(config).beads
    if chosen == "off":
        return note("beads", 'the bus works alone: bus.beads is "off"')
    if shutil.which(beads.COMMAND) is None:
        told = f"the bus works alone: `{beads.COMMAND}` is not on the PATH"
        hint = "install beads, or set bus.beads to off"
        return problem("beads", told, hint=hint) if chosen == "on" else note("beads", told)
    if chosen == "auto" and not (Path(config.project) / beads.FOLDER).is_dir():
        return note("beads", f"the bus works alone: there is no folder {beads.FOLDER} here")
    return ok("beads", f"the bus keeps beads in step, with `{beads.COMMAND}`")
