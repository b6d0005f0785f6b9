"""`[agents.NAME]` and `[agents]`: the agents that answer in conversations, and how long their sessions stay open."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED, LATE, Config, Seconds, Tags, Tools, check_patterns, expand_variables

AgentKind = Literal["acp", "claude"]
AgentPermissions = Literal["deny", "read", "allow"]

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
AgentName = Annotated[str, Meta(pattern=f"^{_NAME}$", max_length=64)]


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An agent that answers in conversations."""

    kind: Annotated[
        AgentKind, Meta(description="protocol: Agent Client Protocol (acp), or the Claude Agent SDK (claude)")
    ] = "acp"
    command: Annotated[
        str | None, Meta(description="program to start; for `claude`, found by its SDK if not set", extra=LATE)
    ] = None
    args: Annotated[list[str], Meta(description="its arguments", extra=LATE)] = []
    env: Annotated[dict[str, str], Meta(description="its environment variables", extra=LATE)] = {}
    cwd: Annotated[str | None, Meta(description="working directory; the project, if not set", extra=LATE)] = None
    model: Annotated[str | None, Meta(description="model to use; the agent's default, if not set")] = None
    permissions: Annotated[
        AgentPermissions,
        Meta(
            description="which of its own tools it may use: none, read-only ones, or all; the gateway's are always allowed"
        ),
    ] = "read"
    tags: Tags = None
    tools: Tools = None
    timeout_s: Annotated[Seconds, Meta(description="time limit of a turn")] = 600.0
    enabled: Annotated[bool, Meta(description="false turns it off")] = True

    def __repr__(self) -> str:
        """Leave out values that may be secrets."""
        return f"AgentSettings(kind={self.kind!r}, command={self.command!r}, …)"


class AllAgentsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conversations with agents. No agent can have the name of one of these settings."""

    default: Annotated[
        str | None, Meta(description="agent that answers if none is given; the first one, if not set")
    ] = None
    sessions: Annotated[int, Meta(ge=1, le=1_000, description="agent sessions open at once", extra=ADVANCED)] = 8
    idle_s: Annotated[
        Seconds, Meta(description="how long a session stays open after its last turn", extra=ADVANCED)
    ] = 480.0
    history_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="length of the conversation that a new session is given, in tokens",
            extra=ADVANCED,
        ),
    ] = 8_000


@dataclass(frozen=True, kw_only=True, repr=False)
class ResolvedAgent:
    """An agent with variables replaced and absolute paths. It may contain secrets, which its repr omits."""

    name: str
    kind: AgentKind
    command: tuple[str, ...]
    env: Mapping[str, str] = field(hash=False)
    cwd: Path
    model: str | None
    permissions: AgentPermissions
    tags: frozenset[str] | None
    tools: tuple[str, ...] | None
    timeout_s: float

    def __repr__(self) -> str:
        return f"<ResolvedAgent {self.name!r} {self.kind!r}>"


def check_agent(name: str, agent: AgentSettings) -> None:
    """Raise `BadConfiguration` for a name that cannot be part of a URL, and for settings that contradict each other."""
    place = f"agents.{name}"
    if not re.fullmatch(_NAME, name) or len(name) > 64:
        raise BadConfiguration(f"agents.`{name}`: an agent's name may contain letters, digits, `.`, `_` and `-`.")
    if agent.kind == "acp" and not agent.command:
        raise BadConfiguration(
            f"{place} has no command.", hint="set it to a program that implements the Agent Client Protocol on stdio"
        )
    check_patterns(agent.tags, agent.tools, place)


def resolve_agent(name: str, agent: AgentSettings, *, environment: Mapping[str, str], project: Path) -> ResolvedAgent:
    """Replace the variables of an agent's settings; errors name the agent and the key, never a value."""
    check_agent(name, agent)

    def expand(text: str, key: str) -> str:
        return expand_variables(text, environment=environment, project=project, place=f"agents.{name}.{key}")

    arguments = [expand(word, f"args[{number}]") for number, word in enumerate(agent.args)]
    return ResolvedAgent(
        name=name,
        kind=agent.kind,
        command=(expand(agent.command, "command"), *arguments) if agent.command else tuple(arguments),
        env={key: expand(value, f"env.{key}") for key, value in agent.env.items()},
        cwd=(project / expand(agent.cwd or "", "cwd")).absolute(),
        model=agent.model,
        permissions=agent.permissions,
        tags=None if agent.tags is None else frozenset(agent.tags),
        tools=None if agent.tools is None else tuple(agent.tools),
        timeout_s=agent.timeout_s,
    )


AGENTS: Final[Section[dict[str, AgentSettings]]] = Section(
    name="agents",
    struct=AgentSettings,
    table=Annotated[dict[AgentName, AgentSettings], Meta(description="agents that answer in conversations, by name")],
    default={},
    check_entry=check_agent,
)

ALL_AGENTS: Final = Section(
    name="agents", struct=AllAgentsSettings, default=AllAgentsSettings(), is_own=True, needs="agents"
)


def read_agent(config: Config, name: str, environment: Mapping[str, str] | None = None) -> ResolvedAgent:
    """Return one agent, enabled or not, with its variables replaced; raises `BadConfiguration` for a missing variable."""
    variables = os.environ if environment is None else environment
    project = Path(config.project).absolute()
    return resolve_agent(name, AGENTS.of(config)[name], environment=variables, project=project)
