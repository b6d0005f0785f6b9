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
    "http.bare_names": "tools have their own names at `/mcp/server/NAME`, and names with a prefix at `/mcp`",
    "http.oauth.introspection_cache_s": "an introspected token is accepted for a minute",
    "http.oauth.issuers.*.introspection_cache_s": "an introspected token is accepted for a minute",
    "limits.page_size": "a page of tools/list has 1,000 tools",
    "store.retry_s": "an unreachable PostgreSQL is tried again for 30 s",
    "bus.age_s": "a task that waited ten minutes comes before new ones of the next higher priority",
    "workspace.build_timeout_s": "a build takes ten minutes at most",
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
    "harness": "its settings are in [agents]",
    "harness.default": "write it in [agents]",
    "harness.sessions": "write it in [agents]",
    "harness.idle_s": "write it in [agents]",
    "harness.history_tokens": "write it in [agents]",
    "harness.open_s": "an agent may take a minute to start",
    "harness.cancel_s": "an agent may take two seconds to stop after a cancellation",
    "harness.waiting": "100 turns may wait for a session",
    "harness.waiting_in_thread": "20 messages may wait in one thread",
    "harness.history_messages": "a new session gets 50 messages at most; `agents.history_tokens` limits their length",
    "limits.conversations": "100,000 conversations may be stored, a share of them for one caller",
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
