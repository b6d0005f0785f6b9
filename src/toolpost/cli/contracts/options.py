"""The options that the commands for contracts share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

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
