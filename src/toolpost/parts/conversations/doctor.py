"""Agents, started and looked at: each opens a session that nobody speaks in, and is ended again."""

import time
from collections.abc import Sequence

import anyio
import msgspec

from toolpost.base.nearest import nearest_name
from toolpost.cli.doctor.findings import Diagnosis, Group, is_installed, note, ok, problem
from toolpost.cli.doctor.servers import STDERR_LINES, missing_command
from toolpost.contracts.errors import BadConfiguration, ToolpostError
from toolpost.part_base import PartDoctor
from toolpost.parts.conversations.agent import AgentSpec, SessionOrder
from toolpost.parts.conversations.agents import LazyAgent
from toolpost.parts.conversations.settings import AGENTS, HARNESS, read_agent
from toolpost.settings import Config
from toolpost.settings.masking import make_concealer
from toolpost.upstreams.spec import ServerSpec


class ConversationsDoctor(PartDoctor):
    """Starts agents, one after the other, and ends them."""

    def names(self, config: Config) -> Sequence[str]:
        """Return the agents."""
        return list(AGENTS.of(config))

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Look for what agents of either kind need, and for the default agent."""
        findings = []
        if not all(map(is_installed, ("acp", "cronsim"))):
            what = "conversations with agents, and prompts on a schedule"
            findings.append(note("extras", f"not installed: {what}; pip install 'toolpost[harness]' brings it"))
        agents, default = AGENTS.of(config), HARNESS.of(config).default
        if default is not None and default not in agents:
            near = nearest_name(default, sorted(agents))
            hint = f"did you mean `{near}`?" if near else "add [agents.NAME]"
            findings.append(problem("configuration", f"harness.default: unknown agent `{default}`", hint=hint))
        return findings

    async def check(self, config: Config, names: Sequence[str]) -> Sequence[Group]:
        """Start these agents."""
        return [await _checked(name, config) for name in names]

    def without_faults(self, config: Config) -> Config:
        """Leave out what cannot even be read: it is found by itself, and keeps nothing else from being looked at."""
        sound = {name: agent for name, agent in AGENTS.of(config).items() if _readable(name, config)}
        harness = HARNESS.of(config)
        default = harness.default if harness.default in sound else None
        return HARNESS.put(AGENTS.put(config, sound), msgspec.structs.replace(harness, default=default))


async def _checked(name: str, config: Config) -> Group:
    if not AGENTS.of(config)[name].enabled:
        return _group(name, note("disabled", "left out: `enabled` is false"))
    try:
        spec = _spec(name, config)
    except BadConfiguration as error:
        return _group(name, problem("configuration", error))
    given = ServerSpec(name=name, command=spec.command or None, env=spec.env, cwd=spec.cwd)
    if missing := missing_command(given, place=f"agents.{name}.command"):
        return _group(name, missing)
    return _group(name, (await _started(spec, HARNESS.of(config).open_s)).mapped(make_concealer(given)))


async def _started(spec: AgentSpec, within_s: float) -> Diagnosis:
    order = SessionOrder(
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
            async with agent.open(order) as session:
                resumes = "can go on with a session" if session.id is not None else "is told the conversation anew"
                return ok("start", f"ready in {time.monotonic() - began:.2f} s; after a restart it {resumes}")
    except TimeoutError:
        hint = "try its command in a shell; harness.open_s gives it more time"
        return problem("start", f"is not ready within {within_s:g} s", hint=hint)
    except ToolpostError as error:
        words = str(error.as_object().get("stderr") or "").splitlines()[-STDERR_LINES:]
        return problem("start", error, lines=words)


def _readable(name: str, config: Config) -> bool:
    try:
        _spec(name, config)
    except BadConfiguration:
        return False
    return True


def _spec(name: str, config: Config) -> AgentSpec:
    return AgentSpec(**vars(read_agent(config, name)))


def _group(name: str, finding: Diagnosis) -> Group:
    return Group(kind="agent", name=name, findings=(finding,))
