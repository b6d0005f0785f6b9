import toolpost.manifest
from toolpost.base.ids import ThreadId as ThreadId
from toolpost.parts.agents.conversations import Conversations as Conversations
from toolpost.parts.agents.ids import TurnId as TurnId
from toolpost.parts.agents.threads import ThreadMessage as ThreadMessage
from toolpost.parts.agents.turn_events import SessionReady as SessionReady
from toolpost.parts.agents.turn_events import TextChunk as TextChunk
from toolpost.parts.agents.turn_events import TurnEnded as TurnEnded
from toolpost.parts.agents.turn_events import TurnEvent as TurnEvent
from toolpost.parts.agents.values import InvokeOptions as InvokeOptions
from toolpost.parts.agents.values import ToolCall as ToolCall
from toolpost.parts.agents.values import TurnInfo as TurnInfo

PART: toolpost.manifest.Part
