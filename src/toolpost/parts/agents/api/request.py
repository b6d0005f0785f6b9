"""A request of the conversations API: its caller, the thread in its path, its query and its body."""

import re
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import parse_qs

import msgspec

from toolpost import ErrorCode, Principal
from toolpost.base import ThreadId, nearest_name
from toolpost.contracts import CallCancelled, InvalidRequest
from toolpost.endpoints.http import HttpRequest, Refused

Body = TypeVar("Body", bound=msgspec.Struct)

_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.+)`")


@dataclass(frozen=True, kw_only=True)
class ConversationRequest:
    """A request of an authenticated caller."""

    http: HttpRequest
    principal: Principal
    thread: ThreadId
    """Empty where the path has none."""
    body_limit: int

    def read_number(self, name: str, default: float, largest: float) -> float:
        """Return a number of the query; raises `InvalidRequest` if it is none, or not between 0 and `largest`."""
        values = parse_qs(self.http.scope.get("query_string", b"").decode("latin-1")).get(name)
        if values is None:
            return default
        try:
            number = float(values[-1])
        except ValueError as error:
            raise InvalidRequest(f"`{name}` must be a number.") from error
        if not 0 <= number <= largest:
            raise InvalidRequest(f"`{name}` must be between 0 and {largest:g}.")
        return number

    async def read_body(self, kind: type[Body]) -> Body:
        """Decode the body, an empty one as `{}`; raises `InvalidRequest`, `Refused` (415) or `CallCancelled`."""
        self.refuse_forms()
        raw = await self.http.body(self.body_limit)
        if raw is None:
            raise CallCancelled("The client disconnected while it sent its request.")
        try:
            return msgspec.json.decode(raw or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = _make_hint(str(error), kind)
            raise InvalidRequest(f"The body does not match the schema of this path: {error}.", hint=hint) from error

    def refuse_forms(self) -> None:
        """Raise `Refused` (415) for requests that a page of another site could send.

        A browser sends neither of the two headers across sites without a preflight request, which is never allowed.
        """
        if not self.http.is_json and self.http.headers.get(b"x-toolpost") != b"1":
            raise Refused(415, ErrorCode.INVALID_REQUEST, "Send `Content-Type: application/json`")


def _make_hint(problem: str, kind: type[msgspec.Struct]) -> str:
    known = kind.__struct_encode_fields__
    unknown = _UNKNOWN_FIELD.search(problem)
    if unknown and (near := nearest_name(unknown[1][:64], known)):
        return f"did you mean `{near}`?"
    return f"an object with: {', '.join(known)}"
