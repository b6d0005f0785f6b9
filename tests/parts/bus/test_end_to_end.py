"""One planner and eight workers, each a process of its own, through client mode: every task is done, and done once."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.loaded import loaded
from tests.parts.bus.projects import Project
from tests.ways import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

TASKS = 60
WORKERS = 8


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)
async def test_one_planner_and_eight_workers(project: Project, url: str, tmp_path: Path) -> None:
    project.make(url)
    async with project.client() as planner:
        for n in range(TASKS):
            needs = [f"task {n - 20}"] if n >= 40 and (n - 20) % 10 != 9 else []
            await planner.ask("submit_task", bead_id=f"task {n}", payload={"n": n}, priority=n % 5, depends_on=needs)
        reports = [tmp_path / f"report {number}" for number in range(WORKERS)]
        workers = [
            subprocess.Popen(
                loaded("-m", "tests.parts.bus.worker", str(project.root), str(project.state), str(report)), cwd=ROOT
            )
            for report in reports
        ]
        codes = [worker.wait(110) for worker in workers]
        status = await planner.ask("get_status")

    told = [json.loads(report.read_text()) for report in reports]
    done = [task for one in told for task in one["done"]]
    assert codes == [0] * WORKERS
    assert len({one["name"] for one in told}) == WORKERS
    assert sorted(done) == sorted(f"task {n}" for n in range(TASKS))
    assert (status["queued_tasks"], status["waiting_tasks"], status["dead"]) == (0, 0, [])
    assert len(status["blocked"]) == TASKS // 10
    log = project.json("tasks", "task 45")
    assert log["state"] == "done"
    assert log["attempt"] == 1
    assert [one["kind"] for one in log["events"]].count("done") == 1
