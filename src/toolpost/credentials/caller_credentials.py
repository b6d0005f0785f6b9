"""Credentials for requests of parts, such as those to an API: values of callers, access tokens, and logins that are missing.

    async with host.open_credentials() as credentials:
        filled = await credentials.fill(spec, caller, names=["TOKEN"])
        answer = await credentials.send(spec, caller, lambda token: request(filled.headers, token), client_channel, limit_s=60)

A part resolves its settings to a `ServerSpec` (`Section.resolve`) and names it in `LoginTargets`. How credentials are stored,
renewed and asked for is left to the other modules here.
"""

import time
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from toolpost.base.caller import Caller, owner_of
from toolpost.contracts.errors import LoginRequired
from toolpost.credentials.server_tokens import ServerTokens
from toolpost.credentials.values import add_owner_values
from toolpost.upstreams.mask import make_mask
from toolpost.upstreams.spec import ServerSpec

if TYPE_CHECKING:
    from toolpost.credentials.gateway_logins import GatewayLogins
    from toolpost.upstreams.server_requests import ClientChannel


class HttpAnswer(Protocol):
    """As much of an answer as says whether it refuses access."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By names in lower case."""
        ...


AnswerT = TypeVar("AnswerT", bound=HttpAnswer)
Send = Callable[[str | None], Awaitable[AnswerT]]
"""Sends a request with this `Authorization` header, None for none."""


class CallerCredentials:
    """Adds credentials of callers to requests that are no server's."""

    def __init__(self, server_tokens: ServerTokens, logins: "Callable[[], GatewayLogins]") -> None:
        """`logins` returns where callers log in, while the gateway is open."""
        self._server_tokens = server_tokens
        self._logins = logins

    async def fill(self, spec: ServerSpec, caller: Caller, *, names: Container[str]) -> ServerSpec:
        """Return the specification with the caller's values in its headers, and in the variables of these names.

        Raises `CredentialRequired` if one is not set, `CredentialUnreadable` if one cannot be decrypted or used.
        """
        own_env = {name: template for name, template in spec.own_env.items() if name in names}
        spec = replace(spec, owner=_owner_at(spec, caller), own_env=own_env)
        return await add_owner_values(spec, self._server_tokens.vault) if spec.caller_values else spec

    async def send(
        self,
        spec: ServerSpec,
        caller: Caller,
        send: Send[AnswerT],
        client_channel: "ClientChannel | None",
        *,
        limit_s: float,
    ) -> AnswerT:
        """Send a request with the caller's access token; again with a new one if it is refused.

        Where the caller has to log in first, its client is asked for that, and the request is sent again once it is done. Raises
        `LoginRequired` if the client cannot ask, the person declines, or it takes longer than `limit_s` seconds; and
        `UpstreamUnavailable` if no token can be had.
        """
        try:
            return await self._send(spec, caller, send)
        except LoginRequired as required:
            await self._logins().wait_for_login(required, spec, caller, client_channel, limit_s=limit_s)
            return await self._send(spec, caller, send)

    async def _send(self, spec: ServerSpec, caller: Caller, send: Send[AnswerT]) -> AnswerT:
        server_token = self._server_tokens.of(replace(spec, owner=_owner_at(spec, caller)))
        if server_token is None:
            return await send(None)
        if time.time() >= server_token.fresh_until:
            await server_token.prepare()
        used = server_token.header
        answer = await send(used)
        challenge = answer.headers.get("www-authenticate", "")
        if answer.status not in (401, 403) or not await server_token.handle_refusal(
            answer.status, challenge, used=used
        ):
            return answer
        answer = await send(server_token.header)
        if answer.status == 401:
            raise server_token.make_repeated_error()
        return answer

    @staticmethod
    def make_mask(secrets: tuple[str, ...], token: str | None) -> Callable[[bytes], bytes]:
        """Return what removes these secrets, and the token of an `Authorization` header, from answers."""
        return make_mask((*secrets, token.rpartition(" ")[2]) if token is not None else secrets).apply


def _owner_at(spec: ServerSpec, caller: Caller) -> str:
    return owner_of(caller) if spec.credentials == "caller" else ""
