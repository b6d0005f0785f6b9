"""Certificates and proxies of outgoing connections: of one server, and of all."""

import asyncio
import datetime as dt
import ipaddress
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from anyio import to_thread
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.settings.resolving import resolve_servers
from tests.upstreams.behind import MEMORY
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.upstreams.servers.proxies import PASSWORD, USER, Proxy, server_context, serving_proxy
from tests.upstreams.test_sse import sse_server
from tests.ways import IN_MEMORY, TOOLPOST, server_environment
from toolpost.app import open_app, open_http
from toolpost.app.callers import read_callers
from toolpost.contracts.errors import BadConfiguration
from toolpost.credentials.fetch import Fetcher
from toolpost.endpoints.auth.oauth_keys import fetch_json
from toolpost.net.client import FailureKind, HttpClient, HttpFailed
from toolpost.net.network import Network, matches_any
from toolpost.parts.models.endpoint import Endpoint, ModelPrompt, PromptMessage
from toolpost.settings import ServerSettings, load_config
from toolpost.settings.callers import IssuerSettings, OAuthSettings
from toolpost.settings.model import HttpSettings, PluginSettings
from toolpost.settings.network import NetworkSettings
from toolpost.terminal.running_gateway import NoGateway, RunningGateway

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


class Authority:
    """A certificate authority, and certificates that it has signed, as files."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), True
        )
        self.file = self._write(
            f"{name}.pem", made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        signed = made.add_extension(x509.SubjectAlternativeName(names), False).sign(self._key, hashes.SHA256())
        plain = serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        return (
            self._write(f"{name}.crt", signed.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{name}.key", private),
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )

    def _write(self, name: str, text: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(text)
        return path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@asynccontextmanager
async def serving_tls(authority: Authority, *, client_ca: Path | None = None) -> AsyncIterator[str]:
    """Answer every request with `{}`, over TLS."""
    cert, key = authority.issue("server")
    context = server_context(str(cert), str(key), client_ca=str(client_ca) if client_ca else None)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}/mcp"
        server.close()


async def get(url: str, network: Network) -> int:
    async with HttpClient(url, network=network) as client:
        return (await client.request("GET")).status


async def test_an_authority_of_ones_own_is_trusted(authority: Authority, tmp_path: Path) -> None:
    async with serving_tls(authority) as url:
        with pytest.raises(HttpFailed, match="certificate verify failed") as refused:
            await get(url, Network())
        assert refused.value.kind is FailureKind.TLS_FAILED
        assert await get(url, Network(ca_file=authority.file)) == 200
        other = Authority(tmp_path, "other")
        with pytest.raises(HttpFailed, match="certificate verify failed"):
            await get(url, Network(ca_file=other.file))
    with pytest.raises(BadConfiguration, match=r"ca_file .*nothing\.pem cannot be used: No such file"):
        Network(ca_file=tmp_path / "nothing.pem").make_ssl_context()


async def test_the_system_decides_whom_to_trust(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_tls(authority) as url:
        with pytest.raises(HttpFailed, match="certificate verify failed"):
            await get(url, Network(trust="system"))
        # Where OpenSSL finds the system's authorities on Linux.
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert await get(url, Network(trust="system")) == 200


async def test_a_client_certificate_is_shown(authority: Authority, tmp_path: Path) -> None:
    clients = Authority(tmp_path, "clients")
    cert, key = clients.issue("client")
    async with serving_tls(authority, client_ca=clients.file) as url:
        with pytest.raises(HttpFailed):
            await get(url, Network(ca_file=authority.file))
        assert await get(url, Network(ca_file=authority.file, client_cert=cert, client_key=key)) == 200
        both = tmp_path / "both.pem"
        both.write_bytes(cert.read_bytes() + key.read_bytes())
        assert await get(url, Network(ca_file=authority.file, client_cert=both)) == 200
    with pytest.raises(BadConfiguration, match="client_cert"):
        Network(client_cert=cert).make_ssl_context()


@pytest.mark.parametrize("kind", ["http", "socks5", "socks5h"])
@pytest.mark.parametrize("requires_user", [True, False])
async def test_a_secure_connection_goes_through_a_proxy(kind: str, requires_user: bool, authority: Authority) -> None:
    proxy = Proxy(kind, requires_user=requires_user)
    async with serving_tls(authority) as url, serving_proxy(proxy) as port:
        user = f"{USER}:{quote(PASSWORD, safe='')}@" if requires_user else ""
        network = Network(ca_file=authority.file, proxy=f"{kind}://{user}127.0.0.1:{port}", no_proxy=())
        assert await get(url, network) == 200
        place = url.removeprefix("https://").removesuffix("/mcp")
        resolved = f"address 127.0.0.1:{place.partition(':')[2]}"
        expected = {"http": f"CONNECT {place}", "socks5": resolved, "socks5h": f"name {place}"}
        assert proxy.seen == [expected[kind]]


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_proxy_that_refuses_is_named_without_the_password(kind: str, authority: Authority) -> None:
    async with serving_tls(authority) as url, serving_proxy(Proxy(kind, requires_user=True)) as port:
        network = Network(ca_file=authority.file, proxy=f"{kind}://ann:wr0ng-secret@127.0.0.1:{port}", no_proxy=())
        with pytest.raises(HttpFailed, match=f"through the proxy 127.0.0.1:{port}") as refused:
            await get(url, network)
        assert not refused.value.sent
        assert "wr0ng" not in str(refused.value)
        assert "wr0ng" not in repr(network)


async def test_servers_are_reached_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without TLS is forwarded whole, over both transports; a server can be told to use no proxy."""
    proxy, web = Proxy("http", requires_user=True), HttpServer()
    async with serving(web) as url, sse_server() as sse, serving_proxy(proxy) as port:
        monkeypatch.setenv("PROXY_PASSWORD", quote(PASSWORD, safe=""))
        network = NetworkSettings(proxy=f"http://{USER}:${{PROXY_PASSWORD}}@127.0.0.1:{port}", no_proxy=[])
        servers = {
            "web": ServerSettings(url=url),
            "near": ServerSettings(url=url, network=NetworkSettings(proxy="")),
            "old": ServerSettings(url=sse, transport="sse"),
        }
        config = msgspec.structs.replace(IN_MEMORY, network=network, servers=servers)
        async with open_app(config, bundled=False) as app, MEMORY.client_of(app) as client:
            assert not (await client.call_tool("web__echo", {"text": "x"})).is_error
            assert f"POST {url}" in proxy.seen
            assert not (await client.call_tool("old__add", {"a": 1, "b": 2})).is_error
            assert f"GET {sse}" in proxy.seen
            count = len(proxy.seen)
            assert not (await client.call_tool("near__echo", {"text": "x"})).is_error
            assert len(proxy.seen) == count


@pytest.mark.parametrize("kind", ["socks5", "socks5h"])
async def test_older_servers_are_reached_through_socks(kind: str) -> None:
    proxy = Proxy(kind, requires_user=True)
    async with sse_server() as sse, serving_proxy(proxy) as port:
        network = NetworkSettings(proxy=f"{kind}://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port}", no_proxy=[])
        old = ServerSettings(url=sse, transport="sse")
        config = msgspec.structs.replace(IN_MEMORY, network=network, servers={"old": old})
        async with open_app(config, bundled=False) as app, MEMORY.client_of(app) as client:
            assert not (await client.call_tool("old__add", {"a": 1, "b": 2})).is_error

    assert {place.rpartition(":")[2] for place in proxy.seen} == {sse.split(":")[2].partition("/")[0]}


@pytest.mark.parametrize("kind", ["socks5", "socks5h"])
async def test_commands_reach_a_gateway_through_socks(kind: str, authority: Authority) -> None:
    proxy = Proxy(kind)
    async with serving_tls(authority) as url, serving_proxy(proxy) as port:
        network = Network(ca_file=authority.file, proxy=f"{kind}://127.0.0.1:{port}", no_proxy=())
        gateway = RunningGateway(url=url.removesuffix("/mcp"), network=network)
        assert await to_thread.run_sync(gateway.ask, "GET", "/x") == {}
        stranger = RunningGateway(url=gateway.url, network=replace(network, ca_file=None))
        with pytest.raises(NoGateway, match="certificate verify failed"):
            await to_thread.run_sync(stranger.ask, "GET", "/x")

    assert len(proxy.seen) == 2


async def test_an_agent_reaches_the_bus_through_the_proxy(tmp_path: Path) -> None:
    """`toolpost bus connect URL`, with `[network]` of the project that it is started in."""
    proxy = Proxy("socks5")
    config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(only="bus"))
    async with open_app(config) as app, open_http(app) as url, serving_proxy(proxy) as port:
        (tmp_path / "toolpost.toml").write_text(f'[network]\nproxy = "socks5://127.0.0.1:{port}"\nno_proxy = []\n')
        started = StdioServerParameters(
            command=TOOLPOST, args=["bus", "connect", url], env=server_environment(), cwd=str(tmp_path)
        )
        async with Client(stdio_client(started)) as client:
            answer = await client.call_tool("get_status", {})

    assert not answer.is_error, answer
    assert proxy.seen
    assert all(url.split("/")[2].partition(":")[2] in place for place in proxy.seen)


async def test_models_and_signing_keys_are_reached_through_the_proxy() -> None:
    """Whatever is not a server takes `[network]`."""
    proxy = Proxy("http")

    async def answer(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        found = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "keys": []}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(found).encode()})

    async with serving(answer) as url, serving_proxy(proxy) as port:
        network = Network(proxy=f"http://127.0.0.1:{port}", no_proxy=())
        endpoint = Endpoint(url, model="m", network=network)
        assert (
            await endpoint.complete(ModelPrompt(messages=[PromptMessage(role="user", content=["hi"])]))
        ).text == "hello"
        await endpoint.aclose()
        assert await fetch_json(Fetcher([url], network), url)
        assert proxy.seen == [f"POST {url}/chat/completions", f"GET {url}"]
        config = msgspec.structs.replace(
            IN_MEMORY,
            network=NetworkSettings(proxy=f"http://127.0.0.1:{port}", no_proxy=[]),
            http=HttpSettings(
                public_url="https://b.example",
                oauth=OAuthSettings(issuers={"a": IssuerSettings(issuer="https://a.example")}, others="allow"),
            ),
        )
        verifier = read_callers(config).verifier
        assert verifier is not None
        assert verifier.rules.issuers[0].network == network


def test_the_environment_counts_only_where_the_settings_say_so() -> None:
    environment = {
        "HTTPS_PROXY": "http://proxy:3128",
        "http_proxy": "plain:8080",
        "NO_PROXY": "corp.example, 10.0.0.0/8",
    }
    network = Network(proxy="env")
    assert Network().find_proxy("https://example.com/", environment) is None
    assert network.find_proxy("https://example.com/", environment) == "http://proxy:3128"
    assert network.find_proxy("http://example.com/", environment) == "http://plain:8080"
    for direct in (
        "https://corp.example/",
        "https://a.corp.example/",
        "https://10.1.2.3/",
        "https://localhost:1/",
        "http://[::1]/",
    ):
        assert network.find_proxy(direct, environment) is None
    assert network.find_proxy("https://notcorp.example/", environment) == "http://proxy:3128"
    assert network.find_proxy("https://x/", {"ALL_PROXY": "socks5h://s:1080"}) == "socks5h://s:1080"
    assert network.find_proxy("https://x/", {}) is None
    with pytest.raises(BadConfiguration, match="https_proxy is not the URL of a proxy"):
        network.find_proxy("https://x/", {"HTTPS_PROXY": "ftp://x"})


@pytest.mark.parametrize(
    ("host", "pattern", "expected"),
    [
        ("example.com", "example.com", True),
        ("a.example.com", ".example.com", True),
        ("a.example.com", "*.example.com", True),
        ("badexample.com", "example.com", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("::1", "::1", True),
        ("anything", "*", True),
        ("anything", "", False),
    ],
)
def test_hosts_without_a_proxy(host: str, pattern: str, expected: bool) -> None:
    assert matches_any(host, [pattern]) is expected


def test_settings_of_a_server_go_before_those_of_all(tmp_path: Path) -> None:
    text = """
    [network]
    ca_file = "corp.pem"
    client_cert = "all.crt"
    client_key = "all.key"
    proxy = "http://proxy:3128"
    trust = "system"
    [servers.one]
    url = "https://one/"
    [servers.two]
    url = "https://two/"
    network = {client_cert = "two.pem", proxy = "", no_proxy = ["x"], trust = "openssl"}
    """
    path = tmp_path / "toolpost.toml"
    path.write_text(text)
    config = load_config(path)
    servers = resolve_servers(config, {})
    assert servers["one"].network == config.resolve_network()
    assert servers["one"].network == Network(
        ca_file=tmp_path / "corp.pem",
        client_cert=tmp_path / "all.crt",
        client_key=tmp_path / "all.key",
        proxy="http://proxy:3128",
        trust="system",
    )
    assert servers["two"].network == Network(
        ca_file=tmp_path / "corp.pem", client_cert=tmp_path / "two.pem", no_proxy=("x",)
    )
    path.write_text('[servers.x]\ncommand = "x"\nnetwork = {proxy = "http://proxy:1"}')
    with pytest.raises(BadConfiguration, match=r"servers\.x\.network needs a `url`"):
        load_config(path)
    path.write_text('[servers.x]\nurl = "http://x/"\nnetwork = {proxy = "gopher://ann:hush@proxy:1"}')
    with pytest.raises(BadConfiguration, match=r"network\.proxy is not the URL of a proxy") as refused:
        resolve_servers(load_config(path), {})
    assert "hush" not in str(refused.value)
