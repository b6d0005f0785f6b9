"""A server with agent skills (SEP-2640), made with the official SDK, on stdio: `skillful.py FOLDER`; HTTP serves the same object.

Each file below the folder is a resource, `skill://` and its path, read whenever it is asked for. A `SKILL.md` makes its folder a
skill; its description is the first line after the frontmatter's name. Pages have two skills. `unlisted` in a path is not listed.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import FileResource
from mcp.shared.exceptions import MCPError

PAGE = 2


class Parameters(types.RequestParams):
    uri: str = ""
    cursor: str | None = None


class Skills(Extension):
    identifier = "io.modelcontextprotocol/skills"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def settings(self) -> dict[str, Any]:
        return {}

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding("skills/list", Parameters, self.list_skills),
            MethodBinding("skills/get", Parameters, self.get_skill),
        ]

    def describe(self, manifest: Path) -> dict[str, Any]:
        files = sorted(path for path in manifest.parent.rglob("*") if path.is_file())
        return {
            "uri": f"skill://{manifest.relative_to(self.folder)}",
            "frontmatter": {"name": manifest.parent.name, "description": manifest.read_text().split("\n")[2][13:]},
            "resources": [
                {
                    "uri": f"skill://{path.relative_to(self.folder)}",
                    "digest": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
                    "size": path.stat().st_size,
                }
                for path in files
            ],
        }

    async def list_skills(self, _context: ServerRequestContext[Any, Any], params: Parameters) -> dict[str, Any]:
        manifests = [path for path in sorted(self.folder.rglob("SKILL.md")) if "unlisted" not in path.parts]
        start = int(params.cursor or 0)
        more = {"nextCursor": str(start + PAGE)} if len(manifests) > start + PAGE else {}
        return {"skills": [self.describe(path) for path in manifests[start : start + PAGE]], **more}

    async def get_skill(self, _context: ServerRequestContext[Any, Any], params: Parameters) -> dict[str, Any]:
        path = self.folder / params.uri.removeprefix("skill://")
        if path.name != "SKILL.md" or not path.is_file():
            raise MCPError(-32602, f"No skill is served at {params.uri}")
        return {"skill": self.describe(path)}


def write_skill(folder: Path, path: str, description: str = "How it is done.", **files: str) -> None:
    root = folder / path
    root.mkdir(parents=True, exist_ok=True)
    (root / "SKILL.md").write_text(f"---\nname: {root.name}\ndescription: {description}\n---\n# Do it\n")
    for name, text in files.items():
        (root / f"{name}.md").write_text(text)


def make_server(folder: Path) -> MCPServer:
    server = MCPServer("skillful", extensions=[Skills(folder)])
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        uri = f"skill://{path.relative_to(folder)}"
        server.add_resource(FileResource(uri=uri, name=path.name, mime_type="text/markdown", path=path))
    return server


if __name__ == "__main__":
    make_server(Path(sys.argv[1])).run("stdio")
