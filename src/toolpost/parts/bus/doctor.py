"""The check of the bus in `toolpost doctor`: whether the beads tracker is updated, and if not, why."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from toolpost.parts import PartDoctor
from toolpost.parts.bus import beads
from toolpost.parts.bus.settings import BUS
from toolpost.settings import Config
from toolpost.terminal import Diagnosis, note, ok, problem


class BusDoctor(PartDoctor):
    """Looks for the command `bd` and the folder of its database."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Return one diagnosis; a problem only if beads are required and `bd` is missing."""
        mode = BUS.of(config).beads
        if mode == "off":
            return [note("beads", 'the bus updates no tracker: bus.beads is "off"')]
        if shutil.which(beads.COMMAND) is None:
            fact = f"the bus updates no tracker: `{beads.COMMAND}` is not on the PATH"
            hint = "install beads, or set bus.beads to off"
            return [problem("beads", fact, hint=hint) if mode == "on" else note("beads", fact)]
        if mode == "auto" and not (Path(config.project) / beads.FOLDER).is_dir():
            return [note("beads", f"the bus updates no tracker: there is no folder {beads.FOLDER} here")]
        return [ok("beads", f"the bus updates beads with `{beads.COMMAND}`")]
