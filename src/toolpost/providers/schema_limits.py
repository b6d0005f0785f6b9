"""The limits of servers' schemas, remembered in the store: a definition that was compiled is not checked again after a start."""

import logging
from typing import Final

import msgspec
from anyio import to_thread

from toolpost.base.events import event
from toolpost.base.ids import Digest, PluginName
from toolpost.contracts.contract import KnownLimits
from toolpost.contracts.source_digest import rules_digest
from toolpost.providers.server_provider import ServerProvider
from toolpost.store.verdicts import Verdicts

_log = logging.getLogger("toolpost.contracts")

Limits = dict[Digest, KnownLimits]

_decode: Final = msgspec.json.Decoder(Limits).decode


class RememberedLimits:
    """What is known of each server's definitions, by the rules of this process."""

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._stored: dict[PluginName, str] = {}

    async def recall(self, provider: ServerProvider) -> Limits:
        """Return the limits of the definitions that were compiled at earlier starts; empty if none are remembered."""
        try:
            written = await self._verdicts.recall("schemas", provider.name, await _find_rules(provider))
            if written is None:
                return {}
            self._stored[provider.name] = written
            return await to_thread.run_sync(_decode, written)
        except Exception as error:  # noqa: BLE001 (without them, the start takes longer)
            event(_log, logging.WARNING, "schemas not recalled", server=provider.name, reason=str(error))
            return {}

    async def remember(self, provider: ServerProvider) -> None:
        """Store the limits of the definitions that it has now, if they are others than those that are stored."""
        written = await to_thread.run_sync(lambda: msgspec.json.encode(provider.find_limits()).decode())
        if written != self._stored.get(provider.name):
            await self._verdicts.remember("schemas", provider.name, await _find_rules(provider), written)
            self._stored[provider.name] = written


async def _find_rules(provider: ServerProvider) -> str:
    # Closing a schema changes it, and so what it costs.
    return f"{await to_thread.run_sync(rules_digest)} {provider.spec.unknown_arguments}"
