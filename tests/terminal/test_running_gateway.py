"""The gateway that a command talks to: at a URL, or that of the configuration."""

import pytest

from toolpost.contracts.errors import BadConfiguration, InvalidRequest
from toolpost.net import DIRECT
from toolpost.settings import Config
from toolpost.settings.model import HttpSettings
from toolpost.terminal import RunningGateway


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLPOST_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("url", "mcp_url"),
    [
        ("http://gateway.example:8420", "http://gateway.example:8420/mcp"),
        ("http://gateway.example:8420/mcp", "http://gateway.example:8420/mcp"),
        ("https://gateway.example/below/mcp/", "https://gateway.example/below/mcp"),
        ("https://gateway.example/mcp/server/bus", "https://gateway.example/mcp/server/bus"),
    ],
)
def test_a_url_may_be_that_of_the_gateway_or_of_an_endpoint(url: str, mcp_url: str) -> None:
    assert RunningGateway.at(url).mcp_url == mcp_url


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is not the URL of a gateway"):
        RunningGateway.of(Config(), "ftp://gateway.example")


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("[::]:1", "http://[::1]:1"),
    ],
)
def test_without_a_url_it_is_the_configured_gateway_on_this_machine(listen: str, url: str) -> None:
    found = RunningGateway.of(Config(http=HttpSettings(listen=listen, token="secret")))

    assert (found.url, found.token) == (url, "secret")
    assert found.network is DIRECT, "no proxy leads to this machine"


def test_a_gateway_without_a_fixed_port_must_be_named() -> None:
    with pytest.raises(BadConfiguration) as refused:
        RunningGateway.of(Config(http=HttpSettings(listen="127.0.0.1:0")))

    assert refused.value.hint == "give its address with --url"
