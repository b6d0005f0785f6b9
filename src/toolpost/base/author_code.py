"""Where in an author's code an error came from, or a function is: the file and line that they have to look at."""

import inspect
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

_NOT_OF_AUTHORS: Final = (
    "<",  # frozen modules, and annotations that are evaluated from text
    str(Path(__file__).parents[1]),
    sysconfig.get_path("stdlib"),
    str(Path(msgspec.__file__).parents[1]),
)
"""Where the files are that no author of a plugin looks into for an error: ours, Python's, and installed ones."""


def place_of_error(error: BaseException) -> str | None:
    """Return the file and line of an author's code that raised an error; None if it came from elsewhere.

    That is the innermost frame outside of Toolpost and of what is installed: the line with the decorator, if a tool could not
    be made.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_OF_AUTHORS)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def format_author_traceback(error: BaseException) -> str:
    """Format a traceback with the frames of the author's files alone; with all frames if the error is not of these files."""
    written = traceback.TracebackException.from_exception(error)
    own = [frame for frame in written.stack if not frame.filename.startswith(_NOT_OF_AUTHORS)]
    # A file that cannot be parsed has no frame: the error itself shows the line.
    is_unparsed = isinstance(error, SyntaxError) and not (error.filename or "<").startswith(_NOT_OF_AUTHORS)
    if own or is_unparsed:
        written.stack = traceback.StackSummary.from_list(own)
    return "".join(written.format(chain=not (own or is_unparsed)))


def place_of_function(function: Callable[..., Any] | None) -> str | None:
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None
