"""The tools that we bring. Each plugin here is written with nothing but what any author has.

time       what time it is, here and elsewhere
history    what was said in a caller's conversations
tasks      what is to be done, and what has to be done before it
schedule   prompts that come by themselves, once or again and again
delegate   other agents, for a part of the work
logs       what this server has logged of a caller's conversations

leading    what the last five share: conversations, and in whose name a tool was called
"""

BUNDLED = ("toolpost.plugins.time:plugin",)
"""Loaded unless the configuration says otherwise."""

FOR_CONVERSATIONS = (
    "toolpost.plugins.history:make",
    "toolpost.plugins.tasks:make",
    "toolpost.plugins.schedule:make",
    "toolpost.plugins.delegate:make",
    "toolpost.plugins.logs:make",
)
"""Loaded where an agent is configured."""
