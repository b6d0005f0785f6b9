"""The client that the official suite's `auth/*` scenarios test: a gateway with the suite's server behind it.

The suite starts a command with the URL of its server for each scenario, all at the same time. The command is a stub that has the
scenario run here, in the test's own process: starting 33 interpreters with all modules takes longer than the scenarios.

A gateway is opened with the suite's server, a browser without a person logs in at `/login/server` where there is something to log
in to, and an MCP client calls the server's tools through the gateway. A call that is answered with LOGIN_REQUIRED is made again
after a login at the address that the answer has.
"""

import asyncio
import json
import re
import tempfile
import time
import traceback
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client

from toolpost.app import App, open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.settings import load_config
from toolpost.testing import error_of

LOGINS_LIMIT = 3
LOGIN_HINT = "run `toolpost login server"
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"


async def find_issuer(url: str) -> str:
    """Return the authorization server of the suite's server, which an operator looks up where secrets are configured."""
    parts = urlsplit(url)
    async with httpx2.AsyncClient() as client:
        for path in (parts.path, ""):
            found = await client.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{path}")
            if found.status_code == 200:
                return str(found.json()["authorization_servers"][0])
    raise LookupError(url)


def settings_for(scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    """Return the `auth` settings that a scenario needs; most need none."""
    if scenario == "auth/basic-cimd":
        return {"client_metadata_url": CLIENT_METADATA}
    if scenario == "auth/pre-registration":
        return {key: context[key] for key in ("client_id", "client_secret")}
    if scenario == "auth/client-credentials-jwt":
        return {
            "type": "client_credentials",
            "client_id": context["client_id"],
            "private_key": context["private_key_pem"],
            "signing_algorithm": context["signing_algorithm"],
        }
    if scenario == "auth/client-credentials-basic":
        return {"type": "client_credentials", **{key: context[key] for key in ("client_id", "client_secret")}}
    if scenario == "auth/enterprise-managed-authorization":
        return {
            "type": "id_jag",
            "client_id": context["client_id"],
            "client_secret": context["client_secret"],
            "idp_token_url": context["idp_token_endpoint"],
            "idp_client_id": context["idp_client_id"],
            "subject_token": context["idp_id_token"],
        }
    if scenario == "auth/wif-jwt-bearer":
        return {"type": "jwt_bearer", "assertion": context["valid_jwt"]}
    return {}


async def log_in(address: str) -> None:
    """Open the address of a login as a browser does, and click on its link."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        page = await browser.get(address)
        link = re.search(r'href="([^"]+)"', page.text)
        assert link is not None, page.text
        done = await browser.get(unescape(link[1]))
        assert done.status_code == 200, done.text


async def use(app: App, url: str, *, needs_person: bool) -> None:
    """List the tools of the server, and call each of them, twice."""
    server = app.servers.providers["server"]
    logins, logged_in_at = 0, 0.0
    async with asyncio.timeout(60):
        while server.definitions is None:
            seen = server.supervisor.report()
            is_new = (seen.last_error_at or 0.0) > logged_in_at
            if needs_person and is_new and (seen.hint or "").startswith(LOGIN_HINT):
                logins += 1
                assert logins <= LOGINS_LIMIT, "the server wants more and more logins"
                # Before it: the server may refuse the new token before the browser is done.
                logged_in_at = time.time()
                await log_in(f"{url.removesuffix('/mcp')}/login/server")
            await asyncio.sleep(0.05)
    async with Client(url) as client:
        async with asyncio.timeout(60):
            # Tools that were just learned are listed a moment later.
            while len(tools := (await client.list_tools()).tools) != len(server.definitions):
                await asyncio.sleep(0.05)
        for tool in tools * 2:
            while True:
                result = await client.call_tool(tool.name, {})
                if not result.is_error:
                    break
                error = error_of(result)
                logins += 1
                assert error["code"] == "LOGIN_REQUIRED", error
                assert logins <= LOGINS_LIMIT, error
                await log_in(error["details"]["url"])


async def run(url: str, scenario: str, context: dict[str, Any], folder: Path) -> None:
    auth = settings_for(scenario, context)
    if "client_secret" in auth or "type" in auth:
        auth["issuer"] = await find_issuer(url)
    lines = [f"{key} = {json.dumps(value)}" for key, value in auth.items()]
    table = "\n".join(["[servers.server.auth]", *lines]) if lines else ""
    (folder / "toolpost.toml").write_text(
        f'plugins.bundled = []\nhttp.listen = "127.0.0.1:0"\n[servers.server]\nurl = {json.dumps(url)}\n{table}\n'
    )
    async with (
        open_app(load_config(folder / "toolpost.toml"), options=OpenOptions(learn_limit_s=5)) as app,
        open_http(app) as gateway,
    ):
        await use(app, gateway, needs_person=auth.get("type", "oauth") == "oauth")


def find_causes(error: BaseException) -> list[BaseException]:
    """Return the errors in a group of groups: printed as a whole, `traceback` leaves out the innermost, which tell why."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for inner in error.exceptions for cause in find_causes(inner)]
    return [error]


async def serve_stubs(turns: asyncio.Semaphore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Run one scenario for the command that the suite started (`auth_stub`), and tell it how that ended."""
    asked = json.loads(await reader.readline())
    try:
        async with turns:
            with tempfile.TemporaryDirectory() as folder:
                await run(asked["url"], asked["scenario"], asked["context"], Path(folder))
        ending = ""
    except (Exception, BaseExceptionGroup) as error:
        ending = "".join("".join(traceback.format_exception(cause)) for cause in find_causes(error))
    writer.write(ending.encode())
    writer.close()
    await writer.wait_closed()
