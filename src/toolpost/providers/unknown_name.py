"""A resource, prompt, skill, method or server that does not exist, or that the caller does not see."""

from toolpost.base.ids import Json
from toolpost.refusals import Kind
from toolpost.upstreams.transport import ServerRefused


class UnknownName(ServerRefused):
    """No plugin or server was asked: the gateway itself knows that it has nothing of this name for this caller."""

    def __init__(self, kind: Kind, name: str, code: int, message: str, data: Json = None) -> None:
        super().__init__(code, message, data)
        self.kind: Kind = kind
        self.name = name
