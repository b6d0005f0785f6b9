"""People of an OpenID Connect provider, npm's `oidc-provider`, log in at the gateway."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest

from tests.conformance.test_conformance import NODE, PLACE
from tests.hostile.attacks import attack
from tests.parts.authorization_server import conftest
from tests.parts.authorization_server.conftest import Gateway, OpenGateway, Pkce, query_of
from toolpost.base.passphrase import hash_passphrase

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.wire,
    pytest.mark.skipif(
        not (PLACE / "oidc-provider").exists(), reason="oidc-provider is not there: scripts/node-servers"
    ),
]

SCRIPT = Path(__file__).with_name("oidc_provider.mjs")


@contextmanager
def provider_for(*redirect_uris: str, host: str = "127.0.0.1") -> Iterator[str]:
    process = subprocess.Popen(
        [NODE, SCRIPT, PLACE, *redirect_uris],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"ISSUER_HOST": host},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        while line and not line.startswith("http"):
            line = process.stdout.readline().strip()
        yield line
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def provided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the issuer, and the settings of a gateway that uses it."""
    port = conftest.free_port()
    monkeypatch.setattr(conftest, "free_port", lambda: port)
    (tmp_path / "secret").write_text("secret: of the gateway, at least 32 bytes")
    with provider_for(f"http://127.0.0.1:{port}/authorize/callback") as issuer:
        text = f'[login.provider]\nissuer = "{issuer}"\nclient_id = "gateway"\nclient_secret = "${{file:secret}}"\n'
        callers = f'[callers.staff]\nissuer = "{issuer}"\ngroups = ["staff"]\ntools = ["does__echo"]\n'
        yield issuer, {"text": text, "callers": callers}


class Browser:
    """Goes where it is sent, until it is back at the gateway."""

    def __init__(self, gateway: Gateway, issuer: str) -> None:
        self.gateway = gateway
        self.issuer = issuer

    async def start(self, client: str, pkce: Pkce) -> str:
        """Return the address at which the provider sends the person back."""
        return await self.follow(await self.gateway.open_page(client, pkce))

    async def follow(self, page: httpx2.Response) -> str:
        name = query_of(str(page.url))["request"]
        assert f"/authorize/provider?request={name}" in page.text
        sent = await self.gateway.http.get(f"{self.gateway.url}/authorize/provider?request={name}")
        target = sent.headers["location"]
        for _ in range(6):
            if target.startswith(f"{self.gateway.url}/"):
                break
            answer = await self.gateway.http.get(target)
            assert answer.status_code in (302, 303), answer.text
            target = str(answer.url.join(answer.headers["location"]))
        assert target.startswith(f"{self.gateway.url}/"), target
        return target


async def test_people_of_the_provider_log_in_as_their_callers(
    provided: tuple[str, dict[str, str]], open_gateway: OpenGateway
) -> None:
    issuer, settings = provided
    async with open_gateway(**settings) as gateway:
        client, pkce, browser = (await gateway.register())["client_id"], Pkce(), Browser(gateway, issuer)
        back = await gateway.http.get(await browser.start(client, pkce))
        page = await gateway.http.get(back.headers["location"])
        done = await gateway.send_form(page, action="allow")
        tokens = await gateway.exchange(client, query_of(done.headers["location"])["code"], pkce)
        status = await gateway.ping(tokens.json()["access_token"])
        [admission] = gateway.app.roster._verified.values()
        await gateway.http.get(f"{issuer}/as/u-bob")
        gateway.http.cookies.clear()
        stranger = await gateway.http.get(await browser.start(client, Pkce()))

    assert "<strong>staff:u-ada</strong>" in page.text
    assert "does__echo" in page.text
    assert status == 400
    assert admission.caller.id == "staff:u-ada"
    assert stranger.status_code == 403, "bob is known to the provider, and in no group that is mapped"


@attack("stranger", "sends the form of the page before the login as consent", "the consent page has to be seen first")
async def test_the_form_before_the_login_is_no_consent(
    provided: tuple[str, dict[str, str]], open_gateway: OpenGateway
) -> None:
    issuer, settings = provided
    # With a passphrase there is a form on the first page.
    ada = f'[callers.ada]\npassphrase_hash = "{hash_passphrase("x")}"\n'
    async with open_gateway(settings["text"], ada + settings["callers"]) as gateway:
        client, browser = (await gateway.register())["client_id"], Browser(gateway, issuer)
        page = await gateway.open_page(client, Pkce())
        back = await gateway.http.get(await browser.follow(page))
        skipped = await gateway.send_form(page, action="allow")
        consent = await gateway.http.get(back.headers["location"])
        done = await gateway.send_form(consent, action="allow")

    assert skipped.status_code == 400
    assert done.status_code == 303


@attack("caller", "asks for a scope that a caller of the provider's tokens has", "is the caller of the consent page")
async def test_tokens_are_of_the_caller_that_was_shown(
    provided: tuple[str, dict[str, str]], open_gateway: OpenGateway
) -> None:
    issuer, settings = provided
    first = f'[callers.machines]\nissuer = "{issuer}"\nscopes = ["tools"]\n'
    async with open_gateway(settings["text"], first + settings["callers"]) as gateway:
        client, pkce, browser = (await gateway.register())["client_id"], Pkce(), Browser(gateway, issuer)
        back = await gateway.http.get(await browser.start(client, pkce))
        page = await gateway.http.get(back.headers["location"])
        done = await gateway.send_form(page, action="allow")
        tokens = await gateway.exchange(client, query_of(done.headers["location"])["code"], pkce)
        await gateway.ping(tokens.json()["access_token"])
        [admission] = gateway.app.roster._verified.values()

    assert "<strong>staff:u-ada</strong>" in page.text
    assert admission.caller.id == "staff:u-ada"


@attack(
    "stranger",
    "brings answers of the provider to another browser, a second time, for another login or from another issuer"
    " (login CSRF, replayed state, code injection, mix-up)",
    "no login takes place",
)
async def test_answers_of_the_provider_count_once_where_they_were_asked_for(
    provided: tuple[str, dict[str, str]], open_gateway: OpenGateway
) -> None:
    issuer, settings = provided
    async with open_gateway(**settings) as gateway:
        client, browser = (await gateway.register())["client_id"], Browser(gateway, issuer)
        answers = []
        # Another browser, without a cookie or with its own.
        back = await browser.start(client, Pkce())
        async with httpx2.AsyncClient(timeout=20) as other:
            answers.append(await other.get(back))
            other.cookies.set("toolpost-login", "A" * 43)
            answers.append(await other.get(back))
        # The right one, and once more.
        right = await gateway.http.get(back)
        answers.append(await gateway.http.get(back))
        # The code of one login with the state of another: nonce and verifier do not fit.
        first, second = await browser.start(client, Pkce()), await browser.start(client, Pkce())
        answers.append(await gateway.http.get(_with(second, code=query_of(first)["code"])))
        # An answer of another issuer, a state that was changed, and no code.
        third = await browser.start(client, Pkce())
        answers.append(await gateway.http.get(_with(third, iss="https://evil.example")))
        fourth = await browser.start(client, Pkce())
        state, _, name = query_of(fourth)["state"].partition(".")
        answers.append(await gateway.http.get(_with(fourth, state=f"{state}.{name[::-1]}")))
        answers.append(await gateway.http.get(f"{gateway.url}/authorize/callback?error=access_denied&state={state}"))

    assert right.status_code == 303
    for answer in answers:
        assert answer.status_code == 400, answer.text
        assert "location" not in answer.headers


def _with(url: str, **params: str) -> str:
    return urlsplit(url)._replace(query=urlencode(query_of(url) | params)).geturl()
