"""Settings of the kernel that are set and have no effect, because another setting that they need is not there.

Parts look at their own (`Part.find_idle`); whole sections are in `section`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from toolpost.contracts.errors import BadConfiguration

if TYPE_CHECKING:
    from toolpost.settings.model import Config


def make_idle(place: str, reason: str, hint: str) -> tuple[str, BadConfiguration]:
    """Return a setting with the error that says why it has no effect, and what to do."""
    return place, BadConfiguration(f"{place} has no effect: {reason}.", hint=hint)


def changed_keys(settings: msgspec.Struct, *keys: str) -> list[str]:
    """Return which of these settings have another value than by default, in this order."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(settings)}
    return [key for key in keys if getattr(settings, key) != defaults[key]]


def find_idle_settings(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    """Yield the settings without effect, by their names."""
    for find in (_find_idle_storage, _find_idle_requests, _find_idle_modes, _find_idle_issuers, _find_idle_servers):
        yield from find(config)


def _find_idle_storage(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    if config.audit.sample == 0:
        for key in changed_keys(config.audit, "keep_days"):
            yield make_idle(f"audit.{key}", "no calls are kept", f"set audit.sample, or remove audit.{key}")
    if config.audit.archive is not None and config.audit.days is None and config.audit.mb is None:
        yield make_idle("audit.archive", "no entries are removed", "set audit.days or audit.mb")
    # A URL with a variable may name another database tomorrow.
    if config.store.url.startswith("sqlite:") and "$" not in config.store.url:
        for key in changed_keys(config.store, "pool"):
            yield make_idle(f"store.{key}", "it is for PostgreSQL", f"remove store.{key}")


def _find_idle_requests(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    if config.network.client_key is not None and config.network.client_cert is None:
        yield make_idle("network.client_key", "there is no certificate of this key", "set network.client_cert")
    others = [*config.servers.values(), *config.parts.get("apis", {}).values()]
    if config.network.no_proxy and not any(each.proxy for each in (config.network, *(one.network for one in others))):
        yield make_idle("network.no_proxy", "there is no proxy", "set network.proxy, or remove network.no_proxy")
    reranker = config.discovery.reranker
    if not reranker.models:
        for key in changed_keys(reranker, "timeout_s"):
            yield make_idle(f"discovery.reranker.{key}", "there is no reranker", "set discovery.reranker.models")


def _find_idle_modes(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    modes = config.modes
    is_used = "minimal" in (modes.mode, *(caller.mode for caller in config.callers.values()))
    if modes.minimal and not is_used:
        hint = 'set mode = "minimal" in [modes] or [callers.NAME], or remove modes.minimal'
        yield make_idle("modes.minimal", "nothing has the mode `minimal`", hint)
    elif is_used and not modes.minimal:
        yield (
            "modes.minimal",
            BadConfiguration(
                "modes.minimal is empty: the mode `minimal` would serve no tools.",
                hint='name them, such as minimal = ["time__*"]',
            ),
        )


def _find_idle_issuers(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    oauth = config.http.oauth
    known = [each.issuer for each in oauth.issuers.values()] if oauth is not None else []
    for name, caller in config.callers.items():
        place = f"callers.{name}.issuer"
        if caller.issuer is not None and not caller.has_claims:
            yield make_idle(
                place, "no claim says which of its tokens are meant", "set subjects, groups or other claims"
            )
        elif caller.issuer is not None and caller.issuer not in known and "login" not in config.parts:
            yield make_idle(place, "this issuer is not known here", "add it as [http.oauth.issuers.NAME]")


_GRANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "redirect_port": ("oauth",),
    "subject_token": ("token_exchange", "id_jag"),
    "subject_token_type": ("token_exchange", "id_jag"),
    "idp_token_url": ("id_jag",),
    "idp_client_id": ("id_jag",),
    "idp_client_secret": ("id_jag",),
    "assertion": ("jwt_bearer",),
}
"""The types of `auth` by the settings that are for them alone."""


def _find_idle_servers(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    for kind, entries in (("servers", config.servers), ("apis", config.parts.get("apis", {}))):
        for name, entry in entries.items():
            if (auth := entry.auth) is None:
                continue
            for key, types in _GRANTS.items():
                if getattr(auth, key) is not None and auth.type not in types:
                    hint = f'set type = "{types[0]}", or remove {key}'
                    yield make_idle(f"{kind}.{name}.auth.{key}", f"`{auth.type}` does not use it", hint)
    for name, server in config.servers.items():
        if server.client_extensions and not server.extensions:
            place = f"servers.{name}.client_extensions"
            yield make_idle(place, "extensions are off", "remove extensions = false, or client_extensions")
