"""The folder `.toolpost`, where Toolpost keeps its files beside a project's own."""

from contextlib import suppress
from pathlib import Path
from typing import Final

STATE_FOLDER: Final = ".toolpost"


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make a folder and its parents. A `.toolpost` among them gets a `.gitignore`: it holds records and tokens."""
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    own = next((place for place in (folder, *folder.parents) if place.name == STATE_FOLDER), None)
    if own is None or (own / ".gitignore").exists():
        return
    with suppress(OSError):  # Another user's folder may not be writable, and can be used all the same.
        (own / ".gitignore").write_text("*\n")
