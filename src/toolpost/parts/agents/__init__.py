"""Conversations with agents, whose sessions stay open between messages; every tool that they use passes the gateway.

part             conversations as a part of a gateway: `settings`, `doctor`, `api`, `plugins`, `commands`
service          `ConversationService`: implements `toolpost.authoring.Conversations` with the modules below

queue            the order of messages in a thread, and of turns in a session
turn             the state of one turn: events, listeners, stop
turn_runner      runs a turn: records it, runs hooks, prompts the agent, ends it once
prompt           prompts an agent in the session that a message belongs to
history          the messages of a conversation that a session does not know yet
hooks            runs plugins' hooks, each with a time limit
recorder         records turns in the store; ends those whose process was killed
running_turns    turns of this process and their listeners
other_processes  turns of other processes on the same store

agents           the configured agents, loaded on first use, and the session that a message belongs to
session_key      the function that derives a session's key
session_pool     open sessions by key
gateway_server   the gateway as the MCP server of an agent; `bridge` forwards stdio to it

agent            the interface of an agent: open, prompt, cancel, ping, close
acp_agent        agents that speak the Agent Client Protocol (`acp_client` answers their requests)
claude_agent     Claude through its own SDK
agent_process    an agent's process: JSON messages in lines, and why it ended
"""

import importlib
from typing import TYPE_CHECKING, Any

from toolpost.parts import Command, Part

if TYPE_CHECKING:
    from toolpost.authoring.conversation import InvokeOptions
    from toolpost.parts.agents.agent import Agent, AgentGone, AgentSession, AgentSpec, SessionOptions
    from toolpost.parts.agents.agents import AgentRegistry, ConfiguredAgent
    from toolpost.parts.agents.history import HistoryLimits
    from toolpost.parts.agents.hooks import Hooks
    from toolpost.parts.agents.service import ConversationLimits, ConversationService
    from toolpost.parts.agents.session_key import PoolKey, Profile, pool_key, profile_of
    from toolpost.parts.agents.session_pool import PoolLimits, SessionPool
    from toolpost.parts.agents.turn import RunningTurn

PART = Part(
    name="agents",
    summary="Conversations with agents, whose tools are the gateway's.",
    opens="toolpost.parts.agents.part:open_agents",
    settings=(
        "toolpost.parts.agents.settings:AGENTS",
        "toolpost.parts.agents.settings:HARNESS",
    ),
    doctor="toolpost.parts.agents.doctor:ConversationsDoctor",
    commands={"chat": Command("toolpost.parts.agents.commands.chat:chat", "Talk to an agent, or list its schedules.")},
)

_HOMES = {
    "toolpost.authoring.conversation": ("InvokeOptions",),
    "toolpost.parts.agents.agent": (
        "Agent",
        "AgentGone",
        "AgentSession",
        "AgentSpec",
        "SessionOptions",
    ),
    "toolpost.parts.agents.agents": (
        "AgentRegistry",
        "ConfiguredAgent",
    ),
    "toolpost.parts.agents.history": ("HistoryLimits",),
    "toolpost.parts.agents.hooks": ("Hooks",),
    "toolpost.parts.agents.service": (
        "ConversationLimits",
        "ConversationService",
    ),
    "toolpost.parts.agents.session_key": (
        "PoolKey",
        "Profile",
        "pool_key",
        "profile_of",
    ),
    "toolpost.parts.agents.session_pool": (
        "PoolLimits",
        "SessionPool",
    ),
    "toolpost.parts.agents.turn": ("RunningTurn",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "PART",
    "Agent",
    "AgentGone",
    "AgentRegistry",
    "AgentSession",
    "AgentSpec",
    "ConfiguredAgent",
    "ConversationLimits",
    "ConversationService",
    "HistoryLimits",
    "Hooks",
    "InvokeOptions",
    "PoolKey",
    "PoolLimits",
    "Profile",
    "RunningTurn",
    "SessionOptions",
    "SessionPool",
    "pool_key",
    "profile_of",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for: the manifest alone must be quick to import."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value
