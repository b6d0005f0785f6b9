"""Files that hold secrets, asked for by every name and through every tool; and credentials in files that may be read."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.hostile.attacks import attack
from tests.parts.workspace.repos import FILES, build, make_repo, search, workspace_client, write
from toolpost.parts.workspace.secrets import may_hold_secrets
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

R = "9f8Kq2mZ7xLw4Tb1Vc6Ns3Yd"
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{R * 2}\n{R * 2}\n-----END OPENSSH PRIVATE KEY-----\n"
LEAK = "leakedBySomebody"
SECRET_FILES = [
    *(
        "toolpost.toml",
        ".mcp.json",
        ".cursor/mcp.json",
        ".vscode/mcp.json",
        "conf/claude_desktop_config.json",
        ".claude.json",
    ),
    *(".env", ".env.production", "deploy/prod.env", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials"),
    *(".aws/credentials", ".docker/config.json", ".kube/config", ".config/gcloud/anything.txt", "certs/server.pem"),
    *(
        "certs/server.key",
        "id_ed25519",
        "store.kdbx",
        "store.p12",
        "store.pfx",
        "store.jks",
        ".ENV.Local",
        "Toolpost.TOML",
    ),
]
PROGRAM = f'''"""Talks to the shop."""

API_TOKEN = "{R}"
DATABASE = "postgresql://shop:Tr0ub4dor@db/shop"


def connect(password="Sw0rdfish77"):
    """Connect with ghp_{R}."""
    return DATABASE
'''
FILES_THERE = {
    **FILES,
    **dict.fromkeys(SECRET_FILES, f"{LEAK} = {R}\n"),
    "certs/server.pem": f"{LEAK} = public\n",
    "deploy/blob": KEY,
    "notes.txt": f"{LEAK[::-1]}\n{KEY}",
    "shop.py": PROGRAM,
    "shop.yaml": "name: shop\npassword: geheim42\n",
    "keys.py": f'KEY = """\n{KEY}"""\n',
    ".env.example": "PASSWORD=<yours>\nPORT=8080\n",
}
MASKED = (R, "Tr0ub4dor", "Sw0rdfish77", "geheim42")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    root = make_repo(tmp_path_factory.mktemp("secrets") / "shop", FILES_THERE)
    (root / "innocent.txt").symlink_to(".env")
    (root / "linked").symlink_to(".aws")
    os.link(root / "shop.py", root / "hard.py")
    async with workspace_client(root, allowed=["certs/server.pem"]) as client:
        yield client


@pytest.fixture(scope="module")
async def built(client: Client) -> Any:
    return await build(client)


async def refused(client: Client, path: str) -> Any:
    error = error_of(await client.call_tool("workspace__show_file", {"path": path}))
    assert error["code"] == "FORBIDDEN", (path, error)
    return error


@attack(
    "caller", "asks for configuration, `.env` and private keys by name", "each is FORBIDDEN, whether it exists or not"
)
async def test_files_that_hold_secrets_are_refused(client: Client) -> None:
    for path in [
        *SECRET_FILES,
        "nowhere/.env",
        "id_rsa",
        "a/.ssh/anything",
        "linked/credentials",
        "./.env",
        ".git/config",
    ]:
        if path != "certs/server.pem":
            error = await refused(client, path)
            assert LEAK not in json.dumps(error)
    assert "workspace.allow_secret_files" in (await refused(client, ".env"))["hint"]


@attack(
    "caller",
    "asks in capitals, with invisible or trailing characters",
    "names are compared as the most lenient file system does",
)
async def test_other_spellings_are_refused(client: Client) -> None:
    for path in (
        ".ENV",
        ".Env.Production",
        ".env.",
        ".env ",
        ".env::$DATA",
        ".e\u200dnv",
        ".\uff45\uff4e\uff56",
        ".GIT/config",
        ".Toolpost/x",
    ):
        await refused(client, path)


@attack("repository", "has a link with a harmless name that leads to `.env`", "the name behind the link decides")
async def test_a_link_is_no_way_around(client: Client) -> None:
    await refused(client, "innocent.txt")


@attack(
    "repository", "keeps a private key under a name that says nothing", "it is told by its first lines, and refused"
)
async def test_private_keys_are_told_by_their_content(client: Client, built: Any) -> None:
    await refused(client, "deploy/blob")
    await refused(client, "notes.txt")
    assert {"path": "deploy/blob", "reason": "secret"} in built["skippedFiles"]


@attack("caller", "searches for the contents of such files", "they are not in the index: no word of them is found")
async def test_secret_files_are_not_indexed(client: Client, built: Any) -> None:
    found = await search(client, LEAK, top=100)
    by_pattern = await search(client, LEAK, regex=True, top=100)

    assert built["skipped"]["secret"] == len(SECRET_FILES) - 1 + 2
    assert {hit["path"] for hit in found["hits"]} == {hit["path"] for hit in by_pattern["hits"]} == {"certs/server.pem"}


@attack(
    "caller",
    "reads and searches files that have credentials in them",
    "they are masked in lines, headlines and signatures",
)
async def test_credentials_are_masked_in_everything_returned(client: Client, built: Any) -> None:
    answers: list[Any] = []
    for path in ("shop.py", "shop.yaml", "keys.py", "hard.py", "certs/server.pem"):
        answers.append(data_of(await client.call_tool("workspace__show_file", {"path": path})))
    answers.append(data_of(await client.call_tool("workspace__show_file", {"path": "keys.py", "start": 4})))
    for query in ("API_TOKEN", "connect", "DATABASE", "password", "KEY"):
        answers.append(await search(client, query, context=5, top=100))
        answers.append(await search(client, query, regex=True, context=5, top=100))
    said = json.dumps(answers)

    assert "(redacted)" in said
    assert all(secret not in said for secret in MASKED)
    assert [line["text"] for line in answers[0]["lines"]][2:4] == [
        'API_TOKEN = "(redacted)"',
        'DATABASE = "postgresql://shop:(redacted)@db/shop"',
    ]
    assert answers[0]["totalLines"] == PROGRAM.count("\n")


@attack("caller", "searches for a guess to have it confirmed", "masked text is not in the index and matches no pattern")
async def test_a_guess_is_not_confirmed(client: Client, built: Any) -> None:
    for secret in MASKED:
        wrong = secret[:-1] + "#"
        for options in ({}, {"case": True}, {"regex": True}):
            for shape in ("{}", '"{}"', "{}|redacted", "redacted.*|{}"):
                if "|" in shape and "regex" not in options:
                    continue
                right = await search(client, shape.format(secret), top=100, **options)
                guess = await search(client, shape.format(wrong), top=100, **options)
                places = [[(hit["path"], hit["line"]) for hit in found["hits"]] for found in (right, guess)]

                assert places[0] == places[1], (secret, shape, options)


@attack(
    "caller",
    "reads a file that has become a private key since it was indexed",
    "it is looked at again before it is shown",
)
async def test_what_changed_since_is_masked_too(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop", {**FILES, "a.txt": "harmlessWord\n", "b.py": "harmlessWord = 1\n"})
    async with workspace_client(root) as client:
        await build(client)
        write(root, {"a.txt": f"{KEY}harmlessWord\n", "b.py": f'harmlessWord = 1\nTOKEN = "{R}"\n'})
        found = await search(client, "harmlessWord", context=5)
        by_pattern = await search(client, "harmlessWord", context=5, regex=True)

    assert R not in json.dumps([found, by_pattern])
    assert {hit["path"] for hit in by_pattern["hits"]} == {"b.py"}


async def test_what_is_allowed_is_read_and_masked(client: Client, built: Any) -> None:
    shown = data_of(await client.call_tool("workspace__show_file", {"path": "certs/server.pem"}))

    assert shown["lines"][0]["text"].startswith(LEAK)
    assert data_of(await client.call_tool("workspace__show_file", {"path": ".env.example"}))["totalLines"] == 2


async def test_a_credential_over_the_end_of_what_is_shown_of_a_line_is_masked(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop", with_git=False)
    async with workspace_client(root) as client:
        for before in range(3_960, 4_010, 7):
            write(root, {"wide.yaml": f"{'x' * before} token=ghp_{R} " + "y" * 9_000})
            shown = data_of(await client.call_tool("workspace__show_file", {"path": "wide.yaml"}))["lines"][0]["text"]
            assert "ghp_9f8" not in shown


def test_ordinary_names_hold_no_secrets() -> None:
    for path in (
        *(
            "src/secrets.py",
            ".env.example",
            ".env.sample",
            ".env.template",
            "environment.ts",
            "keys/readme.md",
            "tokens.py",
        ),
        *("docker/config.json", "package.json", "tests/test_env.py", "src/env.rs", "monkey.py", "docs/kube/config.md"),
    ):
        assert not may_hold_secrets(path), path
