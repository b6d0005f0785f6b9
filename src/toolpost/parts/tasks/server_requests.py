"""What a server asks in the middle of a deferred call: kept until the client looks in, finds it, and answers."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Hashable

import msgspec

from toolpost.base.ids import CallerId, JsonObject
from toolpost.protocol.era import CLIENT_CAPABILITIES
from toolpost.upstreams.server_requests import select_capabilities


class _Question:
    def __init__(self, method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class LaterRespondent:
    """A client that is not there while its call runs, and looks in now and then."""

    takes_input_required = False
    log_level: str | None = None

    def __init__(self, caller: CallerId, meta: JsonObject) -> None:
        self.client: Hashable = (caller, secrets.token_hex(8))
        self.capabilities = select_capabilities(meta.get(CLIENT_CAPABILITIES))
        self._numbers = itertools.count(1)
        self._questions: dict[str, _Question] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when there is a question more, or one less."""

    @property
    def asked(self) -> JsonObject:
        """What waits for an answer, by keys that are never used again."""
        return {
            key: {"method": question.method, "params": msgspec.Raw(question.params)}
            for key, question in self._questions.items()
            if not question.answer.done()
        }

    @property
    def has_open_request(self) -> bool:
        """Whether a question is with the client."""
        return bool(self._questions)

    def take(self, responses: JsonObject) -> None:
        """Take answers; those to questions that do not wait, or wait no more, are passed over."""
        for key, response in responses.items():
            question = self._questions.get(key)
            if question is not None and not question.answer.done() and isinstance(response, dict):
                question.answer.set_result(msgspec.json.encode(response))

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question to the client, and wait for its answer as long as the call may take."""
        key = f"{method.partition('/')[0]}-{next(self._numbers)}"
        question = self._questions[key] = _Question(method, params)
        self.on_change()
        try:
            return await question.answer
        finally:
            del self._questions[key]
            self.on_change()

    def wants_log(self, level: str) -> bool:  # noqa: ARG002
        """Hear nothing: logs have no way to a client that is not there."""
        return False

    def tell(self, method: str, params: bytes) -> None:
        """Pass nothing on, for the same reason."""
