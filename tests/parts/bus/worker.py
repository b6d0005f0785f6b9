"""A worker in a process of its own: an agent without a model, which does tasks through client mode until there are no more."""

import json
import os
import sys
from pathlib import Path

import anyio

from tests.parts.bus.projects import Project


async def main(root: Path, state: Path, report: Path) -> None:
    project = Project(root=root, state=state)
    done = []
    async with project.client() as agent:
        name = (await agent.ask("register_worker", name="worker"))["worker"]
        while True:
            task = await agent.work(name, timeout_ms=3_000)
            if task is None:
                break
            if task["payload"]["n"] % 10 == 9:
                await agent.ask("task_failed", bead_id=task["bead_id"], reason="nines are hard")
            else:
                await agent.ask("worker_done", bead_id=task["bead_id"], result={"by": name, "pid": os.getpid()})
            done.append(task["bead_id"])
    report.write_text(json.dumps({"name": name, "done": done}))


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
