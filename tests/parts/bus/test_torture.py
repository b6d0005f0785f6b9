"""Nothing is lost and nothing is done twice, whatever is killed. `--soak` adds the same at full length."""

from pathlib import Path

import pytest

from tests.hostile.attacks import attack
from tests.parts.bus.torture import Plan, Toll, torture
from tests.postgres import Postgres, open_postgres

pytestmark = [pytest.mark.timeout(3_600), pytest.mark.wire]

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)]
KILLS = [
    Plan(tasks=150, kills=3, pauses=2, worker_kills=3),
    pytest.param(Plan(), marks=pytest.mark.soak),
    pytest.param(
        Plan(tasks=5_000, kills=100, pauses=60, worker_kills=60, work_s=0.2, limit_s=3_000), marks=pytest.mark.soak
    ),
]
RESTARTS = [
    Plan(tasks=200, kills=0, pauses=1, worker_kills=1, restarts=2),
    Plan(tasks=3_000, kills=0, pauses=5, worker_kills=5, restarts=20, work_s=0.1, limit_s=3_000),
]


def check(toll: Toll, plan: Plan) -> None:
    assert toll.lost == []
    assert toll.twice == []
    assert toll.wrongly_accepted == []
    assert toll.strange == []
    assert toll.done == plan.tasks
    assert toll.restarts == plan.restarts


@attack(
    "operator",
    "kills and pauses gateways and workers of the bus at random",
    "no task is lost, none is completed twice, no late result is accepted",
)
@pytest.mark.parametrize("url", STORES, indirect=True)
@pytest.mark.parametrize("plan", KILLS, ids=lambda plan: f"{plan.tasks} tasks")
def test_servers_and_workers_are_killed_and_paused(url: str, tmp_path: Path, plan: Plan) -> None:
    toll = torture(tmp_path, url, plan)

    check(toll, plan)
    assert (toll.server_kills, toll.worker_kills) == (plan.kills, plan.worker_kills)
    assert toll.leases >= plan.tasks


@pytest.mark.soak  # tests/store/test_postgres.py and test_wakeups.py restart the database without a load
@pytest.mark.parametrize("plan", RESTARTS, ids=lambda plan: f"{plan.restarts} restarts")
def test_the_database_is_restarted_under_load(tmp_path: Path, plan: Plan) -> None:
    # One of its own: the others' databases go on.
    with open_postgres() as server:
        toll = torture(tmp_path, server.new_url(), plan, server)

    check(toll, plan)


def test_of_two_servers_on_one_database_one_is_killed_and_the_other_goes_on(postgres: Postgres, tmp_path: Path) -> None:
    plan = Plan(tasks=100, kills=1, pauses=1, worker_kills=1, servers=2, spare=False)
    toll = torture(tmp_path, postgres.new_url(), plan)

    check(toll, plan)
    assert toll.server_kills == 1
