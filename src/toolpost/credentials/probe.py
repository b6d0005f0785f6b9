"""The challenge of a server to clients without a login, found by a request without a token."""

import asyncio
from dataclasses import replace
from typing import Final

from toolpost.contracts.errors import LoginRequired, UpstreamUnavailable
from toolpost.credentials.challenge import Challenge, parse_challenge
from toolpost.credentials.server_tokens import ServerToken
from toolpost.net.client import HttpClient, HttpFailed
from toolpost.upstreams.failures import find_error
from toolpost.upstreams.handshake import fetch_tools, negotiate
from toolpost.upstreams.http.transport import open_http_server
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.transport import ServerRefused

PROBE_S: Final = 15.0
_STREAM_S: Final = 3.0


class _WithoutToken(ServerToken):
    """No token, and nothing that would get one."""

    async def load(self) -> None:
        self.fresh_until = float("inf")


async def find_challenge(spec: ServerSpec, server_token: ServerToken) -> Challenge | None:
    """Return the challenge of a server that refuses a stranger, None if it lets strangers list its tools.

    Raises `UpstreamUnavailable` if it cannot be reached at all.
    """
    assert spec.url is not None
    if not spec.is_mcp:
        return await _ask_by_get(spec)
    without_token = _WithoutToken(replace(spec, auth=None), server_token.vault)
    try:
        async with (
            asyncio.timeout(PROBE_S),
            open_http_server(
                spec,
                ServerLimits(),
                on_notification=lambda *_: None,
                on_gone=lambda _: None,
                server_token=without_token,
            ) as transport,
        ):
            negotiation = await negotiate(transport, probe_first=spec.era != "handshake")
            await fetch_tools(transport, negotiation, spec.name)
    except (Exception, BaseExceptionGroup) as error:
        if find_error(error, LoginRequired) is not None:
            return without_token.challenge
        if find_error(error, ServerRefused) is not None:
            # It may be one of the older HTTP+SSE transport, which is asked for its stream.
            return await _ask_by_get(spec)
        if (known := find_error(error, UpstreamUnavailable)) is not None:
            raise known from error
        raise
    return None


async def _ask_by_get(spec: ServerSpec) -> Challenge | None:
    assert spec.url is not None
    try:
        async with (
            asyncio.timeout(_STREAM_S),
            HttpClient(spec.url, headers=spec.headers, network=spec.network) as client,
        ):
            response = await client.request("GET", on_event=lambda _data: True)
    except (TimeoutError, HttpFailed):
        return None
    challenge = response.headers.get(b"www-authenticate", b"").decode("latin-1")
    return parse_challenge(401, challenge) if response.status == 401 else None
