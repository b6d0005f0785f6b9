"""Prepares a command for its start: finds the executable, builds a minimal environment, limits its times. Part of `tree`."""

import errno
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolpost.contracts.errors import CapabilityMissing

COOKIE = "TOOLPOST_PROCESS_TREE"
"""The environment variable that marks every process of a tree, so that `strays` can find them."""

LONGEST_GRACE_S = 3.5

_INHERITED = {"PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "TERM", "SHELL"}
_INHERITED_ON_WINDOWS = {
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    *("HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)"),
    *("NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
}


@dataclass(frozen=True, kw_only=True)
class PreparedCommand:
    argv: tuple[str, ...]
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
    """Prepare a command; raises `CapabilityMissing` if its executable or its folder does not exist."""
    cookie = os.urandom(8).hex()
    environment = make_environment(env) | {COOKIE: cookie}
    folder = None if cwd is None else os.fspath(cwd)
    eof_s = min(eof_s, LONGEST_GRACE_S) if stdin else 0.0
    return PreparedCommand(
        argv=tuple(command),
        path=_find_executable(command[0], folder, environment),
        cwd=folder,
        environment=environment,
        cookie=cookie,
        stdin=stdin,
        grace_s=min(grace_s, LONGEST_GRACE_S - eof_s),
        eof_s=eof_s,
    )


def make_environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Make the environment of a command: a minimal set of the gateway's own variables, and the given ones.

    The minimal set: PATH, HOME, USER, LANG, LC_*, TMPDIR, TZ, TERM and SHELL; on Windows also what programs cannot start
    without. No secret of the gateway reaches a command unless it is given.
    """
    names = _INHERITED | _INHERITED_ON_WINDOWS if sys.platform == "win32" else _INHERITED
    inherited = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
    if sys.platform == "win32":
        return inherited | {name.upper(): value for name, value in (given or {}).items()}
    return inherited | dict(given or {})


def _find_executable(name: str, cwd: str | None, environment: Mapping[str, str]) -> str:
    """Return the absolute path of a command, searched with its own PATH and from its own folder."""
    if cwd is not None and not Path(cwd).is_dir():
        raise CapabilityMissing(
            f"the command `{name}` cannot be started in {cwd}: there is no such directory",
            hint="create the directory, or set another `cwd`",
            command=name,
            cwd=cwd,
        )
    is_path = Path(name).name != name
    # A relative path starts from the command's folder, not from the gateway's.
    target = str(Path(cwd or "", name).absolute()) if is_path else name
    if path := shutil.which(target, path=environment.get("PATH", os.defpath)):
        return str(Path(path).absolute())
    raise make_start_error(name, errno.EACCES if is_path and Path(target).exists() else errno.ENOENT)


def make_start_error(name: str, number: int) -> CapabilityMissing:
    """Make the error of a command that the system did not start; `number` is an errno."""
    hints = {
        errno.ENOENT: "install it, or give its full path; it is searched on the PATH that the command gets",
        errno.EACCES: "make the file executable (chmod +x), or name another command",
        errno.ENOEXEC: "a script needs a first line such as #!/bin/sh",
    }
    return CapabilityMissing(
        f"the command `{name}` cannot be started: {os.strerror(number)}",
        hint=hints.get(number, "try the command in a shell, as the user that runs Toolpost"),
        command=name,
    )
