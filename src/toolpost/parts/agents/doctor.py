"""The checks of `toolpost doctor` for agents: each agent opens a session, is not prompted, and is closed."""

import importlib.util
import time
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from toolpost import ToolpostError
from toolpost.base import nearest_name
from toolpost.cli import missing_command
from toolpost.contracts import BadConfiguration
from toolpost.parts import PartDoctor
from toolpost.parts.agents import session_pool
from toolpost.parts.agents.agent import AgentSpec, SessionOptions
from toolpost.parts.agents.agents import LazyAgent
from toolpost.parts.agents.settings import AGENTS, ALL_AGENTS, read_agent
from toolpost.settings import Config, make_concealer
from toolpost.terminal import Diagnosis, Group, note, ok, problem
from toolpost.upstreams import ServerSpec

_STDERR_LINES: Final = 5


class AgentsDoctor(PartDoctor):
    """Starts agents, one after the other."""

    def names(self, config: Config) -> Sequence[str]:
        return list(AGENTS.of(config))

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Check that the optional packages are installed and that the default agent exists."""
        findings = []
        if not importlib.util.find_spec("acp"):
            findings.append(
                note("extras", "not installed: conversations with agents; pip install 'toolpost[agents]' brings it")
            )
        agents, default = AGENTS.of(config), ALL_AGENTS.of(config).default
        if default is not None and default not in agents:
            near = nearest_name(default, sorted(agents))
            hint = f"did you mean `{near}`?" if near else "add [agents.NAME]"
            findings.append(problem("configuration", f"agents.default: unknown agent `{default}`", hint=hint))
        return findings

    async def check(self, config: Config, names: Sequence[str]) -> Sequence[Group]:
        return [await _check_agent(name, config) for name in names]

    def without_faults(self, config: Config) -> Config:
        """Leave out agents whose settings cannot be read: `check` reports them, and the other checks can run."""
        valid = {name: agent for name, agent in AGENTS.of(config).items() if _is_readable(name, config)}
        settings = ALL_AGENTS.of(config)
        default = settings.default if settings.default in valid else None
        return ALL_AGENTS.put(AGENTS.put(config, valid), msgspec.structs.replace(settings, default=default))


async def _check_agent(name: str, config: Config) -> Group:
    if not AGENTS.of(config)[name].enabled:
        return _make_group(name, note("disabled", "left out: `enabled` is false"))
    try:
        spec = _make_spec(name, config)
    except BadConfiguration as error:
        return _make_group(name, problem("configuration", error))
    server = ServerSpec(name=name, command=spec.command or None, env=spec.env, cwd=spec.cwd)
    if missing := missing_command(server, place=f"agents.{name}.command"):
        return _make_group(name, missing)
    return _make_group(name, (await _check_start(spec, session_pool.OPEN_S)).mapped(make_concealer(server)))


async def _check_start(spec: AgentSpec, within_s: float) -> Diagnosis:
    session_options = SessionOptions(
        thread=None,
        model=spec.model,
        cwd=spec.cwd,
        permissions=spec.permissions,
        gateway=None,
        resume=None,
        on_gone=lambda _: None,
    )
    try:
        agent = await LazyAgent(spec).load()
        began = time.monotonic()
        with anyio.fail_after(within_s):
            async with agent.open(session_options) as session:
                resumes = "can resume a session" if session.id is not None else "gets the conversation again"
                return ok("start", f"ready in {time.monotonic() - began:.2f} s; after a restart it {resumes}")
    except TimeoutError:
        hint = "run its command in a shell, to find out why"
        return problem("start", f"is not ready within {within_s:g} s", hint=hint)
    except ToolpostError as error:
        stderr = str(error.as_object().get("stderr") or "").splitlines()[-_STDERR_LINES:]
        return problem("start", error, lines=stderr)


def _is_readable(name: str, config: Config) -> bool:
    try:
        _make_spec(name, config)
    except BadConfiguration:
        return False
    return True


def _make_spec(name: str, config: Config) -> AgentSpec:
    return AgentSpec(**vars(read_agent(config, name)))


def _make_group(name: str, diagnosis: Diagnosis) -> Group:
    return Group(kind="agent", name=name, findings=(diagnosis,))
