"""What `toolpost --help` costs."""

import resource
import subprocess
import time

from bench.figures import MS, OURS, Figures, Metric, Pace, Part, S, Target, at_most, say
from bench.load import BenchError
from bench.processes import BIN, ROOT, surroundings

WHO = OURS
HELP_CPU = Metric("toolpost --help", "CPU", S)


def measure(figures: Figures, pace: Pace) -> None:
    """Run it once per round."""
    for number in range(1, pace.rounds + 1):
        say(f"round {number}/{pace.rounds}: toolpost --help")
        used_s, began = _children_cpu_s(), time.perf_counter()
        ran = subprocess.run(
            [str(BIN / "toolpost"), "--help"], cwd=ROOT, env=surroundings(), capture_output=True, check=False
        )
        if ran.returncode != 0:
            raise BenchError(f"toolpost --help failed: {ran.stderr.decode(errors='replace')[-2_000:]}")
        figures.add(HELP_CPU, WHO, _children_cpu_s() - used_s)
        figures.add(Metric(HELP_CPU.scenario, "time", MS), WHO, (time.perf_counter() - began) * 1000)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def targets(figures: Figures) -> list[Target]:
    found = figures.median(HELP_CPU, WHO)
    return [] if found is None else [at_most(str(HELP_CPU), found, 0.3, S)]


PART = Part(name="help", title="`toolpost --help`", measure=measure, targets=targets)
