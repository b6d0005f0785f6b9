"""`[workspace]`: the folders whose code is indexed."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from toolpost.parts import Section
from toolpost.settings import ADVANCED, Seconds


class WorkspaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The `workspace` plugin: the folders whose code is indexed and may be read."""

    roots: Annotated[list[str], Meta(description="folders, each a repository; the project unless given")] = []
    index_dir: Annotated[str, Meta(description="where indexes are kept, relative to the project", extra=ADVANCED)] = (
        ".toolpost/workspace"
    )
    file_limit_bytes: Annotated[
        int, Meta(ge=1024, le=1 << 30, description="largest file that is indexed", extra=ADVANCED)
    ] = 2 * 1024 * 1024
    allow_secret_files: Annotated[
        list[str],
        Meta(
            description="globs of files that may be read although their names say that they hold secrets",
            extra=ADVANCED,
        ),
    ] = []
    watch: Annotated[
        bool, Meta(description="whether a running server indexes changes by itself, in the background")
    ] = False
    settle_s: Annotated[
        Seconds,
        Meta(description="how long files that are watched must be left alone before they are indexed", extra=ADVANCED),
    ] = 1.0


WORKSPACE: Final = Section(
    name="workspace",
    struct=WorkspaceSettings,
    default=WorkspaceSettings(),
    relocate=lambda settings, folder: msgspec.structs.replace(settings, index_dir=f"{folder}/workspace"),
)
