"""What is to be started, made ready: the command found, its environment small, its times within the limit.

Part of `process_tree`, which is the one front door: only it and its other parts import this.
"""

import errno
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolpost.contracts.errors import CapabilityMissing

COOKIE = "TOOLPOST_PROCESS_TREE"
"""The variable that marks every process of a tree, for the sweep."""

LONGEST_GRACE_S = 3.5

_INHERITED = {"PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "TERM", "SHELL"}
_INHERITED_ON_WINDOWS = {
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    *("HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)"),
    *("NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
}


@dataclass(frozen=True, kw_only=True)
class PreparedCommand:
    """A command that can be started as it stands."""

    command: tuple[str, ...]
    path: str
    cwd: str | None
    environment: Mapping[str, str]
    cookie: str
    stdin: bool
    grace_s: float
    eof_s: float


def prepare_command(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    stdin: bool,
    grace_s: float,
    eof_s: float,
) -> PreparedCommand:
    """Make a command ready, or raise the `CapabilityMissing` that says why it cannot be started."""
    cookie = os.urandom(8).hex()
    environment = make_environment(env) | {COOKIE: cookie}
    folder = None if cwd is None else os.fspath(cwd)
    eof_s = min(eof_s, LONGEST_GRACE_S) if stdin else 0.0
    return PreparedCommand(
        command=tuple(command),
        path=_find_executable(command[0], folder, environment),
        cwd=folder,
        environment=environment,
        cookie=cookie,
        stdin=stdin,
        grace_s=min(grace_s, LONGEST_GRACE_S - eof_s),
        eof_s=eof_s,
    )


def make_environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a command's environment is: a minimal set of the gateway's own, and what was given on top.

    The minimal set: PATH, HOME, USER, LANG, LC_*, TMPDIR, TZ, TERM and SHELL; on Windows also what programs
    cannot start without. No secret of the gateway reaches a command that was not given it.
    """
    names = _INHERITED | _INHERITED_ON_WINDOWS if sys.platform == "win32" else _INHERITED
    inherited = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
    if sys.platform == "win32":
        return inherited | {name.upper(): value for name, value in (given or {}).items()}
    return inherited | dict(given or {})


def _find_executable(name: str, cwd: str | None, environment: Mapping[str, str]) -> str:
    """Return the absolute path of a command, sought as its own environment and folder would have it."""
    if cwd is not None and not Path(cwd).is_dir():
        raise CapabilityMissing(
            f"the command `{name}` cannot be started in {cwd}: there is no such directory",
            hint="make the directory, or name another working directory",
            command=name,
            cwd=cwd,
        )
    is_path = Path(name).name != name
    # A relative path starts from the command's folder, not from ours.
    wanted = str(Path(cwd or "", name).absolute()) if is_path else name
    if path := shutil.which(wanted, path=environment.get("PATH", os.defpath)):
        return str(Path(path).absolute())
    raise make_start_error(name, errno.EACCES if is_path and Path(wanted).exists() else errno.ENOENT)


def make_start_error(name: str, number: int) -> CapabilityMissing:
    """Say why the system did not start a command, and what to do."""
    hints = {
        errno.ENOENT: "install it, or give its full path; it is sought on the PATH that the command gets",
        errno.EACCES: "make the file executable (chmod +x), or name another command",
        errno.ENOEXEC: "a script needs a first line such as #!/bin/sh",
    }
    return CapabilityMissing(
        f"the command `{name}` cannot be started: {os.strerror(number)}",
        hint=hints.get(number, "try the command in a shell, as the user that runs Toolpost"),
        command=name,
    )
