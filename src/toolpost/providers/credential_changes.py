"""Follows the credentials of servers: a server restarts with new ones, stops without, and is listed again after a login."""

import logging
from collections.abc import Mapping
from typing import Final

import anyio

from toolpost.base.events import event
from toolpost.credentials.vault import TOPIC, Vault
from toolpost.providers.learning import Learning
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.supervisors import Supervisors

_log = logging.getLogger("toolpost.servers")

CREDENTIALS_S: Final = 30.0
"""How often stored credentials are compared with those in use, should a notice of their change be missed."""

SETTLE_S: Final = 0.1
"""How long to wait for further changes before they are acted upon."""


class CredentialChanges:
    """The changes of credentials that servers use."""

    def __init__(
        self, providers: Mapping[str, ServerProvider], supervisors: Supervisors, learning: Learning, vault: Vault
    ) -> None:
        self._providers = providers
        self._supervisors = supervisors
        self._learning = learning
        self._vault = vault
        self._is_following = False

    def follow(self) -> None:
        """Follow changes from now on, if a server uses credentials that may change; nothing to do if they are followed."""
        is_needed = any(
            provider.spec.caller_values or provider.by_owner is not None for provider in self._providers.values()
        )
        if is_needed and not self._is_following and self._supervisors.is_open:
            self._is_following = True
            self._supervisors.start_soon(self._follow)

    def note_login(self, server: str, owner: str) -> None:
        """List the tools of a server to an owner at once, now that it lets us."""
        base = self._providers.get(server)
        provider = base.by_owner.find(owner) if base is not None and base.by_owner is not None else base
        if provider is not None:
            self._learning.start(provider)

    async def _follow(self) -> None:
        async with self._vault.wakeups.open_listener(TOPIC) as listener:
            while True:
                with anyio.move_on_after(CREDENTIALS_S):
                    await listener.wait()
                    await anyio.sleep(SETTLE_S)
                for provider in [one for each in self._providers.values() for one in each.all_owners]:
                    if provider.spec.caller_values:
                        await self._renew(provider)
                    elif provider.by_owner is not None:
                        # Its owner may have logged in at another gateway, or at the command line. What the empty owner is
                        # listed is shown to callers who have not logged in yet, so that a call can tell them to.
                        self._learning.start(provider)

    async def _renew(self, provider: ServerProvider) -> None:
        try:
            has_credentials = await provider.supervisor.renew_credentials()
        except Exception as error:  # noqa: BLE001 (the store may be unreachable; the credentials in use stay valid)
            event(_log, logging.WARNING, "credentials not compared", server=provider.name, reason=str(error))
            return
        if has_credentials and not provider.has_own_definitions:
            # The owner may have set its credentials just now.
            self._supervisors.start_soon(self._learning.learn_for_owner, provider)
