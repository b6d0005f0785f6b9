"""Where a lock is kept, and how it is read and replaced."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from toolpost.cli.clients.safe_files import write_whole
from toolpost.contracts.errors import BadLock
from toolpost.contracts.lockfile import LockedTool, LockedTools, lock_text, parse_lock
from toolpost.settings import Config
from toolpost.settings.lock import text_of_lock

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

lock_option: Decorator = click.option(
    "--lock",
    "lock_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The lock file (default: toolpost.lock beside the configuration).",
)

only_option: Decorator = click.option(
    "--server", "only", multiple=True, metavar="NAME", help="Only the tools of this server or plugin; repeatable."
)


class LockFile:
    """One lock file, as it was when it was read."""

    def __init__(self, path: Path) -> None:
        """Read it; a file that is not there is no lock."""
        self.path = path
        self.text = text_of_lock(path)
        self.tools: dict[str, LockedTool] | None = None
        if self.text is not None:
            self.tools = parse_lock(self.text, name=path.name)

    @classmethod
    def of(cls, config: Config, path: Path | None) -> "LockFile":
        """Read the one that was named, else the project's."""
        return cls(path if path is not None else config.lock_path)

    def required(self) -> dict[str, LockedTool]:
        """Return the tools; without a lock there is nothing to compare with."""
        if self.tools is None:
            raise BadLock(
                f"There is no {self.path}.", hint="`toolpost lock` writes it; commit it beside the configuration"
            )
        return self.tools

    def replace(self, tools: LockedTools) -> bool:
        """Write these tools instead, all at once; False if that changes nothing."""
        text = lock_text(tools)
        if text == self.text:
            return False
        write_whole(self.path, text, before=self.text)
        return True
