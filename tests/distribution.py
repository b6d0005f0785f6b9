"""Which worker gets which test, and when: a file goes to one worker, so that what its tests share is made once; long ones first.

What takes long and is begun last leaves the other workers idle. The tests of files in `APART` share nothing and take their time:
each goes to whoever is free, one of each file before the next of any, so that the heaviest do not meet.
"""

from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

TOGETHER = (
    "upstreams/test_oidc_provider.py",
    "upstreams/test_faithfulness.py",
    "upstreams/test_npm_servers.py",
    "cli/test_chat.py",
    "browser/test_chat_page.py",
)
APART = (
    "docs/test_guides.py",
    "parts/bus/test_torture.py",
    "upstreams/test_faults_are_seen.py",
    "parts/bus/test_end_to_end.py",
    "upstreams/test_soak.py",
    "parts/agents/test_leaks.py",
    "middleware/test_pipeline_accepts.py",
    "parts/bus/test_connect.py",
    "parts/workspace/test_watch.py",
    "parts/tasks/test_survival.py",
    "store/test_processes.py",
    "store/test_wakeups.py",
    "upstreams/test_scale.py",
    "parts/bus/test_model.py",
    "cli/test_store_command.py",
    "parts/workspace/test_attacks.py",
    "parts/workspace/test_builds.py",
    "parts/workspace/test_ends.py",
    "hostile/test_kills.py",
    "hostile/test_fuzz.py",
)
SLOW = (
    "conformance/test_conformance.py",
    "conformance/test_auth.py",
    "hostile/test_many_tools.py",
    "parts/approvals/test_faults.py",
    "parts/trail/test_faults.py",
    "parts/agents/test_two_gateways.py",
    "upstreams/test_kills.py",
    "wire/test_shutdown.py",
    "test_tiers.py",
    "parts/test_installed_part.py",
    "cli/test_schedules.py",
    "cli/test_login.py",
    "cli/test_call_gateway.py",
    "cli/test_serve.py",
    "wire/test_cancellation.py",
    "store/test_call_journal.py",
    "parts/bus/test_beads.py",
    "test_pytest_plugin.py",
    "cli/test_narrow.py",
)
"""They have few tests, and would come last by their number: begun after those above, and before all others."""
_SLOW = {f"tests/{name}" for name in SLOW}
_LONG = {f"tests/{name}": place for place, name in enumerate((*TOGETHER, *APART, *SLOW))}
_APART = {f"tests/{name}" for name in APART}


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files in the order of the collection, and some of them test by test."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in _APART else file


def make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    """Take the place of `--dist loadfile` alone."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return LongestFirst(config, log)


def put_in_order(items: list[pytest.Item]) -> None:
    """Put the longest first, then the files with the most tests."""
    files = [item.nodeid.partition("::")[0] for item in items]
    sizes, met = Counter(files), Counter[str]()
    keys: dict[int, tuple[int, int, int]] = {}
    for item, file in zip(items, files, strict=True):
        met[file] += file in _APART
        turn = len(items) if file in _SLOW else met[file]
        keys[id(item)] = (0, turn, _LONG[file]) if file in _LONG else (1, -sizes[file], 0)
    items.sort(key=lambda item: keys[id(item)])
