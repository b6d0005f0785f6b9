"""`.toolpost`, the folder for what Toolpost keeps beside a project's files."""

from contextlib import suppress
from pathlib import Path
from typing import Final

OWN_FOLDER: Final = ".toolpost"


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it. A `.toolpost` among them is ignored by git: it holds records and tokens."""
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    own = next((place for place in (folder, *folder.parents) if place.name == OWN_FOLDER), None)
    if own is None or (own / ".gitignore").exists():
        return
    with suppress(OSError):  # Somebody else's folder, which can be used all the same.
        (own / ".gitignore").write_text("*\n")
