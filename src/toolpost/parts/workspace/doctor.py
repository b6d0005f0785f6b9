"""The checks of `toolpost doctor` for the code index."""

from collections.abc import Sequence

from toolpost.parts import PartDoctor
from toolpost.parts.workspace.optional import EXTRA_HINT, has
from toolpost.settings import Config
from toolpost.terminal import Diagnosis, note


class WorkspaceDoctor(PartDoctor):
    """Checks that the extra `toolpost[workspace]` is installed."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:  # noqa: ARG002 (what is installed is not configured)
        if has("tantivy"):
            return ()
        what = "the plugin `workspace`, which indexes and searches code"
        return [note("extras", f"not installed: {what}; {EXTRA_HINT} brings it")]
