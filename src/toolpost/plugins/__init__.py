"""The tools that we bring. Each plugin here is written with nothing but what any author has.

bus        tasks for agents: handed out, acknowledged, done
time       what time it is, here and elsewhere
workspace  an index of code, built and searched
history    what was said in a caller's conversations
tasks      what is to be done, and what has to be done before it
schedule   prompts that come by themselves, once or again and again
delegate   other agents, for a part of the work
logs       what this server has logged of a caller's conversations

leading    what the last five share: conversations, and in whose name a tool was called
"""

from typing import Final

BUNDLED: Final = ("bus", "time", "workspace")
"""Loaded where `plugins.bundled` or `--with` names them."""

DEFAULT: Final = ("time",)
"""What is loaded where nothing at all is configured, so that there is something to try."""

FOR_CONVERSATIONS: Final = (
    "toolpost.parts.conversations.plugins.history:make",
    "toolpost.parts.conversations.plugins.tasks:make",
    "toolpost.parts.conversations.plugins.schedule:make",
    "toolpost.parts.conversations.plugins.delegate:make",
    "toolpost.parts.conversations.plugins.logs:make",
)
"""Loaded where an agent is configured."""
