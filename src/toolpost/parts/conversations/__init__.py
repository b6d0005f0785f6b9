"""Conversations with agents, whose sessions are kept warm; every tool that they use passes the gateway.

part           conversations as a part of a gateway; it brings `settings`, `metrics`, `doctor`, `api`, `plugins`, `commands`
service        `handle_message`, `prewarm`, `cancel`: the front door
way            what a turn passes: kept, heard by hooks, answered, ended once
asking         an agent is asked, in the session that a message belongs to
own_threads    a caller's threads, begun, found and read
under_way      turns that have not ended, and who listens to them
elsewhere      turns of other processes on the same store, told to stop
crew           who answers, and the session that each message belongs to
turn           one turn on its way: heard, told, stopped
keeping        what is kept of it, and what becomes of one whose process was killed
line           messages of a thread, and turns of a session, in the order in which they came
profile        the one function that says which session a message belongs to
pool           sessions kept under that key, until nobody has used them for a while
history        what a session has to be told of the conversation first
hooks          what plugins have to say, each apart from the others
runner         which process runs a turn, and whether it is still there
doors          a session's own way in to the gateway

port           what an agent is to all of these: open, prompt, cancel, ping, close
acp_agent      agents that speak the Agent Client Protocol (`acp_client` answers what they ask)
claude_agent   Claude through its own SDK
agent_process  an agent's process: lines in, lines out
gateway_server the gateway as the MCP server that an agent is handed; `bridge` passes stdio on to it
late           both kinds of agents, loaded when one is first opened
"""

from toolpost.authoring.conversation import InvokeOptions
from toolpost.parts.conversations.agent import Agent, AgentGone, AgentSession, AgentSpec, SessionOrder
from toolpost.parts.conversations.agents import Crew, ReadyAgent
from toolpost.parts.conversations.history import HistoryLimits
from toolpost.parts.conversations.hooks import Hooks
from toolpost.parts.conversations.service import Harness, HarnessLimits
from toolpost.parts.conversations.session_key import PoolKey, Profile, pool_key, profile_of
from toolpost.parts.conversations.session_pool import Pool, PoolLimits
from toolpost.parts.conversations.turn import TurnRun

__all__ = [
    "Agent",
    "AgentGone",
    "AgentSession",
    "AgentSpec",
    "Crew",
    "Harness",
    "HarnessLimits",
    "HistoryLimits",
    "Hooks",
    "InvokeOptions",
    "Pool",
    "PoolKey",
    "PoolLimits",
    "Profile",
    "ReadyAgent",
    "SessionOrder",
    "TurnRun",
    "pool_key",
    "profile_of",
]
