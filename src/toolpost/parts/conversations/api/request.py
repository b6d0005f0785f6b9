"""A request of the API of conversations, as those who answer it read it: who asks, what the path names, the query, the body."""

import re
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import parse_qs

import msgspec

from toolpost.base.caller import Principal
from toolpost.base.ids import ThreadId
from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import CallCancelled, ErrorCode, InvalidRequest
from toolpost.endpoints.http.refusal import Refused
from toolpost.endpoints.http.request import HttpRequest

Body = TypeVar("Body", bound=msgspec.Struct)

_UNKNOWN: Final = re.compile(r"unknown field `(.+)`")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request that was let in."""

    request: HttpRequest
    principal: Principal
    thread: ThreadId
    """Empty where the path names none."""
    body_limit: int

    def number(self, name: str, default: float, largest: float) -> float:
        """Read a number out of the query."""
        found = parse_qs(self.request.scope.get("query_string", b"").decode("latin-1")).get(name)
        if found is None:
            return default
        try:
            number = float(found[-1])
        except ValueError as error:
            raise InvalidRequest(f"`{name}` is a number.") from error
        if not 0 <= number <= largest:
            raise InvalidRequest(f"`{name}` is between 0 and {largest:g}.")
        return number

    async def body(self, kind: type[Body]) -> Body:
        """Read the body."""
        self.check_not_a_form()
        raw = await self.request.body(self.body_limit)
        if raw is None:
            raise CallCancelled("The client went away while it was asking.")
        try:
            return msgspec.json.decode(raw or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = _hint(str(error), kind)
            raise InvalidRequest(f"The body is not what this path takes: {error}.", hint=hint) from error

    def check_not_a_form(self) -> None:
        """Refuse what any page could post: neither of these headers is sent across sites without asking first."""
        if not self.request.is_json and self.request.headers.get(b"x-toolpost") != b"1":
            raise Refused(415, ErrorCode.INVALID_REQUEST, "Send `Content-Type: application/json`")


def _hint(problem: str, kind: type[msgspec.Struct]) -> str:
    """Say what a body may hold, or what was probably meant."""
    known = kind.__struct_encode_fields__
    unknown = _UNKNOWN.search(problem)
    if unknown and (near := nearest_name(unknown[1][:64], known)):
        return f"did you mean `{near}`?"
    return f"an object with: {', '.join(known)}"
