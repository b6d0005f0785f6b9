"""Settings of earlier versions that are gone or have moved, each with what replaced it; one that is there is refused."""

from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = "`${VAR}` and `${file:PATH}` are replaced in it"

REMOVED: Final[Mapping[str, str]] = {
    "http.token_file": 'write `token = "${file:PATH}"`',
    "http.oauth.introspection_secret_env": f"use `introspection_secret`: {_VARIABLE}",
    "http.oauth.introspection_secret_file": f"use `introspection_secret`: {_VARIABLE}",
    "http.oauth.issuers.*.introspection_secret_env": f"use `introspection_secret`: {_VARIABLE}",
    "http.oauth.issuers.*.introspection_secret_file": f"use `introspection_secret`: {_VARIABLE}",
    "callers.*.token_env": 'write `token = "${VAR}"`',
    "callers.*.token_file": 'write `token = "${file:PATH}"`',
    "callers.*.passphrase_file": 'write `passphrase_hash = "${file:PATH}"`',
    "discovery.reranker.key_env": 'write `key = "${VAR}"`',
    "models.*.key_env": 'write `key = "${VAR}"`',
    "models.*.key_file": 'write `key = "${file:PATH}"`',
    "peers.*.token_env": 'write `token = "${VAR}"`',
    "export.*.secret_env": 'write `secret = "${VAR}"`',
    "export.*.headers_env": 'write `headers = {Authorization = "Bearer ${VAR}"}`',
    "retention": "`days`, `mb` and `archive` are in [audit]",
    "login.provider.client_secret_env": 'write `client_secret = "${VAR}"`',
    "login.provider.client_secret_file": 'write `client_secret = "${file:PATH}"`',
    "approvals.confirmed": "use `modes.confirmed`, which counts for rules and in the mode `readonly`",
    "approvals.limit": "20,000 rounds may be open at once, a share of them for one caller",
    "peers.*.interval_s": "events are exchanged every minute",
    "router.timeout_s": "`router_call` takes 120 s at most; `router.attempt_s` limits one attempt",
    "router.failures": "three failures in a row open a circuit",
    "router.pause_s": "a circuit is open for a minute, or as long as the model asks for",
    "telemetry.service_name": "set the variable OTEL_SERVICE_NAME",
    "telemetry.traces": "set the variable OTEL_TRACES_EXPORTER to `none` to send no spans",
    "telemetry.metrics": "set the variable OTEL_METRICS_EXPORTER to `none` to send no metrics",
    "telemetry.interval_s": "set the variable OTEL_METRIC_EXPORT_INTERVAL, in milliseconds",
    "telemetry.queue": "set the variable OTEL_BSP_MAX_QUEUE_SIZE",
}
"""What to do instead, by setting; `*` is the name of an entry."""


def find_replacement(key: str) -> str | None:
    """Return what to do instead of a setting that is gone, None for one that never was."""
    steps = key.split(".")
    for removed, replacement in REMOVED.items():
        wanted = removed.split(".")
        if len(wanted) == len(steps) and all(one in ("*", other) for one, other in zip(wanted, steps, strict=True)):
            return replacement
    return None
