"""What a changed configuration does to each server."""

from dataclasses import replace

from toolpost.providers.servers import AppliedChanges, ApplyPlan
from toolpost.upstreams.spec import ServerSpec

KEPT, MOVED, RULED, LEFT, OWNED = (
    ServerSpec(name=name, url=f"http://{name}", credentials="caller" if name == "owned" else "shared")
    for name in ("kept", "moved", "ruled", "left", "owned")
)
BEFORE = {spec.name: spec for spec in (KEPT, MOVED, RULED, LEFT, OWNED)}


def plan_of(*specs: ServerSpec) -> ApplyPlan:
    return ApplyPlan.between(BEFORE, specs)


def test_servers_are_added_removed_restarted_or_revised() -> None:
    new = ServerSpec(name="new", url="http://new")
    plan = plan_of(new, replace(RULED, timeout_s=1), replace(MOVED, url="http://elsewhere"), KEPT, OWNED)

    assert plan.as_changes() == AppliedChanges(added=["new"], removed=["left"], restarted=["moved"], revised=["ruled"])
    assert plan.names == ["new", "ruled", "moved", "kept", "owned"]
    assert plan.changed == {"new", "left", "moved", "ruled"}


def test_a_server_with_a_provider_for_each_caller_restarts_after_any_change() -> None:
    assert [*plan_of(*BEFORE.values(), replace(OWNED, timeout_s=1)).restarted] == ["owned"]


def test_a_server_that_gets_a_provider_for_each_caller_restarts() -> None:
    assert [*plan_of(*BEFORE.values(), replace(KEPT, credentials="caller")).restarted] == ["kept"]


def test_the_same_specifications_change_nothing() -> None:
    plan = plan_of(*BEFORE.values())

    assert plan.as_changes().is_nothing
    assert plan.changed == set()
