"""`toolpost doctor` goes the way of a client, from outside."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from tests.parts.authorization_server.conftest import OpenGateway
from toolpost.contracts.errors import BadConfiguration
from toolpost.parts.authorization_server.doctor import LoginDoctor
from toolpost.parts.authorization_server.settings import LOGIN, ProviderSettings, check_login
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings
from toolpost.terminal.findings import Level

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


async def test_a_gateway_where_clients_can_log_in_is_well(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        findings = await LoginDoctor().check_setup(gateway.app.config)
    gone = await LoginDoctor().check_setup(gateway.app.config)

    assert [(each.level, each.message) for each in findings] == [(Level.OK, f"clients can log in at {gateway.url}")]
    assert [each.level for each in gone] == [Level.WARNING]


def at(url: str, config: Config) -> Config:
    """Return the configuration of a gateway with this public URL."""
    return msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, public_url=url))


async def test_an_address_that_is_not_the_issuers_is_a_problem(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        other = gateway.url.replace("127.0.0.1", "localhost")
        config = gateway.app.config
        findings = await LoginDoctor().check_setup(at(other, config))

    assert [each.level for each in findings] == [Level.PROBLEM]
    assert other in findings[0].message


class Proxy(ThreadingHTTPServer):
    """A proxy in front of a gateway; `fault` says what it does wrong."""

    target = ""
    fault = ""
    daemon_threads = True


class ProxyHandler(BaseHTTPRequestHandler):
    """Passes requests on."""

    server: Proxy

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests free of it."""

    def pass_on(self) -> None:
        kind, _, name = self.server.fault.partition(" ")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {key: value for key, value in self.headers.items() if f"{kind} {key.lower()}" != f"without {name}"}
        if kind == "host":
            headers = {key: value for key, value in headers.items() if key.lower() != "host"} | {"Host": name}
        connection = HTTPConnection(self.server.target)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        is_lost = kind == "path" and self.path.startswith(name)
        self.send_response(404 if is_lost else answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in ("content-length", "connection") and f"{kind} {key.lower()}" != f"strip {name}":
                self.send_header(key, value)
        content = b"not here" if is_lost else content
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_POST = pass_on  # noqa: N815 (the names that the library calls)


@contextmanager
def proxy() -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", 0), ProxyHandler) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            served.shutdown()
            thread.join()


async def test_faults_of_a_proxy_are_named(open_gateway: OpenGateway) -> None:
    faults = {
        "": ("clients can log in", ""),
        "path /.well-known/": ("answers 404, and not with metadata", "/.well-known/"),
        "path /token": ("/token answers 404", "/token"),
        "path /mcp": ("/mcp answers 404", "/mcp"),
        "host other.example": ("does not know its own name", "http.allowed_hosts"),
        "strip www-authenticate": ("does not say where to log in", "WWW-Authenticate"),
        "strip x-frame-options": ("in a frame", "X-Frame-Options"),
        "strip set-cookie": ("sets no cookie", "Set-Cookie"),
        "without authorization": ("sees no token", "Authorization"),
        "without cookie": ("its own forms", "Cookie"),
        "without origin": ("its own forms", "Origin"),
    }
    with proxy() as between:
        url = f"http://127.0.0.1:{between.server_port}"
        async with open_gateway(http=f'public_url = "{url}"') as gateway:
            between.target = gateway.url.removeprefix("http://")
            found = {}
            for fault in faults:
                between.fault = fault
                found[fault] = (await LoginDoctor().check_setup(gateway.app.config))[0]
            elsewhere = (await LoginDoctor().check_setup(at(gateway.url, gateway.app.config)))[0]
            between.shutdown()
            between.server_close()
            unreachable = (await LoginDoctor().check_setup(gateway.app.config))[0]
        stopped = (await LoginDoctor().check_setup(gateway.app.config))[0]

    for fault, (message, hint) in faults.items():
        assert message in found[fault].message, fault
        assert hint in (found[fault].hint or ""), fault
        assert found[fault].level is (Level.PROBLEM if fault else Level.OK), fault
    assert (elsewhere.level, f"is about `{url}/mcp`" in elsewhere.message) == (Level.PROBLEM, True)
    assert "restart" in (elsewhere.hint or "")
    assert unreachable.level is Level.PROBLEM
    assert "the gateway runs, but" in unreachable.message
    assert "refused" in unreachable.message
    assert stopped.level is Level.WARNING
    assert "toolpost serve" in (stopped.hint or "")


@pytest.mark.parametrize(
    ("url", "provider", "message"),
    [
        ("http://tools.example.com", ProviderSettings(), "must be an https URL"),
        ("https://tools.example.com/mcp", ProviderSettings(), "without a path"),
        ("", ProviderSettings(issuer="https://sso.example"), "client_id is not set"),
        ("", ProviderSettings(issuer="http://sso.example", client_id="x"), "must be an https URL"),
        ("", ProviderSettings(), "no caller could log in"),
    ],
)
def test_settings_that_cannot_work_are_refused(url: str, provider: ProviderSettings, message: str) -> None:
    config = LOGIN.put(at(url, Config()), msgspec.structs.replace(LOGIN.default, enabled=True, provider=provider))
    with pytest.raises(BadConfiguration, match=message):
        check_login(config)


async def test_passphrases_without_a_login_are_pointed_out() -> None:
    callers = {"ada": CallerSettings(passphrase_hash="${file:x}")}
    findings = await LoginDoctor().check_setup(Config(callers=callers))

    assert [each.level for each in findings] == [Level.WARNING]
