"""Real repositories for tests, made with git, and Toolposts that serve them."""

import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from mcp import Client

from tests.ways import IN_MEMORY, STATELESS, Way
from toolpost.app import App, open_app
from toolpost.parts.workspace.plugin import workspace_plugin
from toolpost.parts.workspace.service import WorkspaceService
from toolpost.parts.workspace.spec import WorkspaceLimits, spec_of
from toolpost.settings import Config
from toolpost.testing import data_of

MEMORY = Way("memory", STATELESS)

USERS = '''"""Users and where they come from."""

import json

LIMIT = 100


class UserStore:
    """Keeps users."""

    def getUserById(self, number):
        """Return the user with this number, or None if nobody has it."""
        return self.users.get(number)

    def save(self, user):
        self.users[user.number] = user


def load_users(path):
    """Read every user from a JSON file on disk."""
    store = UserStore()
    for user in json.loads(path.read_text()):
        store.save(user)
    return store.getUserById(1)
'''

GUIDE = """# Guide

How to keep users.

## Backing up

Copy the archive to another machine every night.
"""

FILES: dict[str, str] = {
    "src/users.py": USERS,
    "src/app.js": "// Starts the application.\nfunction startApp(port) {\n  return getUserById(port);\n}\n",
    "docs/guide.md": GUIDE,
}


def git(root: Path, *arguments: str) -> str:
    env = {
        **os.environ,
        **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    ran = subprocess.run(["git", "-C", str(root), *arguments], check=False, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def make_repo(root: Path, files: Mapping[str, str | bytes] = FILES, *, with_git: bool = True) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    write(root, files)
    if with_git:
        git(root, "init", "--quiet", "--initial-branch=main")
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", "first")
    return root


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@asynccontextmanager
async def workspace_app(project: Path, *roots: str, config: Config = IN_MEMORY, **options: Any) -> AsyncIterator[App]:
    """Serve a workspace alone."""
    limits = options.pop("limits", WorkspaceLimits())
    spec = spec_of(project, list(roots) or ["."], limits=limits, **options)
    config = msgspec.structs.replace(config, project=str(project))
    async with open_app(config, plugins=[workspace_plugin(WorkspaceService(spec))], bundled=False) as app:
        yield app


@asynccontextmanager
async def workspace_client(project: Path, *roots: str, way: Way = MEMORY, **options: Any) -> AsyncIterator[Client]:
    async with workspace_app(project, *roots, **options) as app, way.client_of(app) as client:
        yield client


async def build(client: Client, **arguments: Any) -> Any:
    """Build, and return what came of the first repository."""
    return data_of(await client.call_tool("workspace__index_build", arguments))["repositories"][0]


async def search(client: Client, query: str, **arguments: Any) -> Any:
    return data_of(await client.call_tool("workspace__search", {"query": query, **arguments}))


async def first(client: Client, query: str, **arguments: Any) -> Any:
    return (await search(client, query, **arguments))["hits"][0]


async def paths(client: Client, query: str, **arguments: Any) -> list[str]:
    return [hit["path"] for hit in (await search(client, query, **arguments))["hits"]]
