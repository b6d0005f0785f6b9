"""Contributions of parts: found by kind, refused without one."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from toolpost.app import open_app
from toolpost.app.reload import apply_config
from toolpost.app.serve import _find_action_items
from toolpost.authoring.middleware import ToolInfo
from toolpost.base.caller import Principal
from toolpost.contracts.errors import BadConfiguration, CapabilityMissing
from toolpost.embedded import APPLICATION
from toolpost.host.contributions import KINDS, Contributions
from toolpost.middleware import Call, CheckedResult
from toolpost.middleware.interface import NextStep
from toolpost.parts import (
    ActionItem,
    ActionItems,
    Background,
    ConsoleView,
    Gauges,
    Guard,
    Host,
    Part,
    Reload,
    ResultLimiter,
    Service,
)
from toolpost.settings import Config
from toolpost.testing import IN_MEMORY

pytestmark = pytest.mark.anyio


class Watchman(Guard):
    name = "watchman"

    def may_apply(self, tool: ToolInfo) -> bool:
        return True

    async def admit(self, call: Call, proceed: NextStep) -> CheckedResult:
        return await proceed(call)

    def check(self, call: Call) -> None:
        return None


class Lookalike:
    """Has the methods of a guard, and is none."""

    name = Watchman.name
    may_apply = Watchman.may_apply
    admit = Watchman.admit
    check = Watchman.check


class Shortener(ResultLimiter):
    small_bytes = 1

    async def limit(self, call: Call, result: CheckedResult) -> CheckedResult:
        return result


def one_part(name: str, *items: object) -> Part:
    """Make a part that contributes these values."""

    @asynccontextmanager
    async def open_part(host: Host) -> AsyncIterator[Sequence[object]]:
        yield items

    return Part(name=name, opens=open_part)


def test_values_are_found_by_their_kind_in_the_order_of_parts() -> None:
    contributions = Contributions()
    guard, first, second = (
        Watchman(),
        ConsoleView("One", "/one", Path("one.js")),
        ConsoleView("Two", "/two", Path("two.js")),
    )
    contributions.add("one", [first, guard])
    contributions.add("none", ())
    contributions.add("two", [second, Service("anything")])

    assert contributions.named(ConsoleView) == [("one", first), ("two", second)]
    assert contributions.all(Guard) == [guard]
    assert contributions.first(Guard) is guard
    assert contributions.first(Gauges) is None
    assert contributions.parts == ["one", "none", "two"]


@pytest.mark.parametrize(
    ("item", "described"),
    [
        (Lookalike(), "a value of type Lookalike"),
        (Watchman, "the class `Watchman`"),
    ],
)
async def test_a_value_of_no_known_kind_keeps_the_gateway_from_starting(item: object, described: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        async with open_app(IN_MEMORY, bundled=False, parts=[one_part("night", item)]):
            pass
    assert caught.value.message == f"The part `night` contributes {described}, which is of no known kind."
    assert all(kind.__name__ in (caught.value.hint or "") for kind in KINDS)


@pytest.mark.parametrize("member", ["name", "may_apply", "admit", "check"])
async def test_a_guard_without_one_of_its_members_keeps_the_gateway_from_starting(member: str) -> None:
    members = {name: value for name, value in vars(Watchman).items() if not name.startswith("_") and name != member}
    guard = type("Careless", (Guard,), members)()
    with pytest.raises(BadConfiguration) as caught:
        async with open_app(IN_MEMORY, bundled=False, parts=[one_part("night", guard)]):
            pass
    assert caught.value.message == (
        f"The part `night` contributes a Guard without `{member}`: a value of type Careless."
    )
    assert caught.value.hint == "define it in the class `Careless`"


async def test_the_members_of_every_base_class_are_needed() -> None:
    limiter = type("Careless", (ResultLimiter,), {})()
    with pytest.raises(BadConfiguration, match="contributes a ResultLimiter without `limit`, `small_bytes`"):
        async with open_app(IN_MEMORY, bundled=False, parts=[one_part("night", limiter)]):
            pass


async def fail(*_: object) -> None:
    raise ValueError("boom")


async def test_a_part_that_cannot_prepare_a_change_leaves_the_configuration_as_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changed = msgspec.structs.replace(IN_MEMORY, contracts="warn")
    async with open_app(IN_MEMORY, bundled=False, parts=[one_part("night", Reload("night", fail))]) as app:
        await apply_config(app, lambda: changed)

        assert app.changes.config is not changed
    reason = caplog.records[-1].__dict__["fields"]["reason"]
    assert reason.startswith("the part `night` could not prepare the change of [night]: ValueError: boom")


async def test_a_change_that_fails_in_one_part_is_taken_over_in_the_others(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    async def prepare_failure(_: Config) -> Callable[[], Awaitable[None]]:
        return fail

    async def prepare(_: Config) -> Callable[[], Awaitable[None]]:
        async def note() -> None:
            done.append("day")

        return note

    changed = msgspec.structs.replace(IN_MEMORY, contracts="warn")
    parts = [one_part("night", Reload("night", prepare_failure)), one_part("day", Reload("day", prepare))]
    async with open_app(IN_MEMORY, bundled=False, parts=parts) as app:
        await apply_config(app, lambda: changed)

        assert app.changes.config is changed
    assert done == ["day"]
    assert "change of a part failed" in caplog.text


async def test_items_of_a_part_that_fails_do_not_hide_those_of_others(caplog: pytest.LogCaptureFixture) -> None:
    async def find(_: Principal) -> list[ActionItem]:
        return [ActionItem(title="Look", text="at this")]

    parts = [one_part("night", ActionItems(fail)), one_part("day", ActionItems(find))]  # type: ignore[arg-type]
    async with open_app(IN_MEMORY, bundled=False, parts=parts) as app:
        found = await _find_action_items(app, Principal(caller=APPLICATION, scopes=(), is_admin=False))

    assert [item.title for item in found] == ["Look"]
    assert "action items failed" in caplog.text


async def test_two_parts_cannot_both_have_what_there_is_one_of() -> None:
    parts = [one_part("night", Shortener()), one_part("day", Shortener())]
    with pytest.raises(BadConfiguration, match="The parts `night` and `day` both contribute a ResultLimiter"):
        async with open_app(IN_MEMORY, bundled=False, parts=parts):
            pass


async def test_a_part_has_the_gateway_once_it_is_open() -> None:
    hosts: list[Host] = []

    @asynccontextmanager
    async def open_caller(host: Host) -> AsyncIterator[Sequence[object]]:
        with pytest.raises(RuntimeError, match="not open yet"):
            _ = host.gateway

        @asynccontextmanager
        async def run() -> AsyncIterator[None]:
            assert len(host.gateway.catalog) == 0
            hosts.append(host)
            yield

        yield [Background(run), Background(run, while_plugin="absent")]

    async with open_app(IN_MEMORY, bundled=False, parts=[Part(name="caller", opens=open_caller)]) as app:
        assert [host.gateway for host in hosts] == [app.gateway]


@pytest.mark.parametrize("is_required", [True, False])
async def test_a_part_that_is_required_and_does_not_open_keeps_the_gateway_from_starting(is_required: bool) -> None:
    def fail(host: Host) -> None:
        raise CapabilityMissing("its library is missing")

    part = Part(name="policy", opens=fail, is_required=lambda _config: is_required)
    opening = open_app(IN_MEMORY, bundled=False, parts=[part])
    if is_required:
        with pytest.raises(BadConfiguration, match="the part `policy` cannot be enforced: its library is missing"):
            async with opening:
                pass
    else:
        async with opening as app:
            assert [plugin.name for plugin in app.plugins.plugins if plugin.state == "failed"] == ["policy"]
