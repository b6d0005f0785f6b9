"""Ids of conversations. None is a secret: access is checked against the owner of the conversation."""

import secrets
from typing import NewType

from toolpost.base import ThreadId

TurnId = NewType("TurnId", str)
AgentSessionId = NewType("AgentSessionId", str)
"""A session, named by the agent program. Not a thread's id: one conversation may have many sessions."""


def new_thread_id() -> ThreadId:
    return ThreadId(f"t-{secrets.token_hex(12)}")


def new_turn_id() -> TurnId:
    return TurnId(f"u-{secrets.token_hex(12)}")
