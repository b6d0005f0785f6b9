"""Conversations with agents, whose sessions stay open between messages; every tool that they use passes the gateway.

part             conversations as a part of a gateway: `settings`, `doctor`, `api`, `plugins`, `commands`
conversations    `Conversations`: the interface for plugins, the HTTP API and the chat, on the modules below
hookspecs        the hooks of conversations, which plugins implement
values           what plugins receive and give: `TurnInfo`, `ToolCall`, `InvokeOptions`
turn_events      the events of a turn
ids              ids of threads, turns and sessions of agents
threads          the tables of conversations: threads, messages, turns

queue            the order of messages in a thread, and of turns in a session
turn             the state of one turn: events, listeners, stop
turn_runner      runs a turn: records it, runs hooks, prompts the agent, ends it once
prompt           prompts an agent in the session that a message belongs to
history          the messages of a conversation that a session does not know yet
hooks            runs plugins' hooks, each with a time limit
recorder         records turns in the store; ends those whose process was killed
live_turns       turns of this process and their listeners
other_processes  turns of other processes on the same store

agents           the configured agents, loaded on first use, and the session that a message belongs to
session_key      the function that derives a session's key
session_pool     open sessions by key
gateway_server   the gateway as the MCP server of an agent; `bridge` forwards stdio to it

agent            the interface of an agent: open, prompt, cancel, ping, close
acp_agent        agents that speak the Agent Client Protocol (`acp_client` answers their requests)
claude_agent     Claude through its own SDK
agent_process    an agent's process: JSON messages in lines, and why it ended
trial_agent      an agent for tests, which does what each prompt says; `testing` has agents in this process

Plugins import what `__init__.pyi` lists. The names are looked up when they are first used: the manifest alone must be quick to
import.
"""

from toolpost.parts import Command, Part, lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)

PART = Part(
    name="agents",
    summary="Conversations with agents, whose tools are the gateway's.",
    opens="toolpost.parts.agents.part:open_agents",
    settings=(
        "toolpost.parts.agents.settings:AGENTS",
        "toolpost.parts.agents.settings:ALL_AGENTS",
    ),
    migrations="toolpost.parts.agents.migrations",
    doctor="toolpost.parts.agents.doctor:AgentsDoctor",
    commands={"chat": Command("toolpost.parts.agents.commands.chat:chat", "Talk to an agent, or list its schedules.")},
)
