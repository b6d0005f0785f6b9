"""`[console]`: whether the web console is served."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from toolpost.parts import Section


class ConsoleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The web console."""

    enabled: Annotated[bool, Meta(description="serve it at `/`")] = True


CONSOLE: Final = Section(name="console", struct=ConsoleSettings, default=ConsoleSettings())
