"""Which server has a resource."""

import pytest

from tests.hostile.attacks import attack
from toolpost.providers.resource_owners import Account, ResourceOwners


def owners_of(**templates: list[str]) -> ResourceOwners:
    owners = ResourceOwners()
    for server, found in templates.items():
        owners.note_templates(Account(server), found)
    return owners


def accounts(*servers: str) -> list[Account]:
    return [Account(server) for server in servers]


def test_what_one_account_lists_is_unknown_to_another() -> None:
    owners = ResourceOwners()
    owners.note_uris(Account("a", "ann"), ["book://one"])
    owners.note_templates(Account("a", "ann"), ["shelf://{book}"])

    for uri in ("book://one", "shelf://two"):
        assert owners.find(uri, [Account("a", "ann")]) == "a"
        assert owners.find(uri, [Account("a", "ben")]) is None
    owners.forget("a")
    assert owners.find("book://one", [Account("a", "ann")]) is None


def test_the_first_server_that_lists_a_uri_and_is_visible_has_it() -> None:
    owners = ResourceOwners()
    owners.note_uris(Account("a"), ["book://one"])
    owners.note_uris(Account("b"), ["book://one"])

    assert owners.find("book://one", accounts("a", "b")) == "a"
    assert owners.find("book://one", accounts("b")) == "b"
    assert owners.find("book://one", accounts("c")) is None
    owners.forget("a")
    assert owners.find("book://one", accounts("a", "b")) == "b"


@attack("server", "lists other resources each time, to fill memory", "only the URIs of its last list are kept")
def test_a_list_replaces_the_one_before() -> None:
    owners = ResourceOwners()
    for number in range(3):
        owners.note_uris(Account("a"), [f"book://{number}/{page}" for page in range(1_000)])

    assert owners.find("book://1/7", accounts("a")) is None
    assert owners.find("book://2/7", accounts("a")) == "a"
    assert sum(map(len, owners._listed.values())) == 1_000


def test_the_template_with_the_most_literal_text_wins() -> None:
    owners = owners_of(all=["file:///{+path}"], logs=["file:///logs/{day}"], late=["file:///{+name}"])

    assert owners.find("file:///logs/today", accounts("all", "logs", "late")) == "logs"
    assert owners.find("file:///etc/hosts", accounts("late", "all")) == "late"
    assert owners.find("http://example.com", accounts("all", "logs")) is None


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("a://{x}/b/{y}/c", "a://1/b/2/c", True),
        ("a://{x}/b/{y}/c", "a://1/c", False),
        ("a://b{?q,r}", "a://b?q=1", True),
        ("a://b{?q,r}", "a://b{?q,r}", True),
        ("a://ab{x}ba", "a://aba", False),
        ("a://fixed", "a://fixed", True),
        ("a://fixed", "a://fixed/more", False),
        ("{+anything}", "a://b", False),
        ("{scheme}://b", "a://b", False),
    ],
)
def test_a_template_is_compared_by_its_literals(template: str, uri: str, fits: bool) -> None:
    assert (owners_of(one=[template]).find(uri, accounts("one")) == "one") is fits


def test_a_template_made_to_be_slow_is_not() -> None:
    owners = owners_of(hostile=["a:" + "{+x}a" * 5_000 + "!"])

    assert owners.find("a:" + "a" * 50_000, accounts("hostile")) is None
