"""Settings of earlier versions that are gone or have moved, each with its replacement; a file that has one is refused."""

from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = "`${VAR}` and `${file:PATH}` are replaced in it"
_MODEL: Final = "write [models.NAME], and name it in `discovery.reranker.models`"
_ISSUER_KEYS: Final = (
    "issuer",
    "audiences",
    "scopes",
    "jwks_url",
    "introspection_url",
    "introspection_client",
    "introspection_secret",
    "groups_claim",
    "roles_claim",
)

REMOVED: Final[Mapping[str, str]] = {
    "project": "relative paths start from the folder of this file",
    "http.token_file": 'write `token = "${file:PATH}"`',
    "http.connections": "their number follows from the limit on open files (`ulimit -n`)",
    "http.connections_per_address": "an address may have a quarter of all connections; name proxies in `http.trusted_proxies`",
    "http.oauth.resource": "write `http.public_url`, without `/mcp`",
    **{f"http.oauth.{key}": "issuers have names: write it in [http.oauth.issuers.NAME]" for key in _ISSUER_KEYS},
    **{
        f"http.oauth.{where}{key}": reason
        for where in ("", "issuers.*.")
        for key, reason in (
            ("jwks_file", "serve the file over https, or on this machine, and write its URL as `jwks_url`"),
            ("algorithms", "signatures by RSA, ECDSA and EdDSA keys are accepted"),
        )
    },
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
    "limits.sessions": "10,000 sessions may be open, or eight times `limits.calls` if that is more",
    "limits.streams": "512 event streams may be open, or half of `limits.calls` if that is more",
    "limits.tasks": "20,000 MCP tasks may be stored, a share of them for one caller",
    "audit.keep": "the contents of 10,000 calls are kept; `audit.keep_days` limits their age",
    "store.journal_read_only": "every call in flight is in the journal",
    "store.retry_s": "an unreachable PostgreSQL is tried again for 30 s",
    "bus.offer_s": "a task must be acknowledged within 15 seconds",
    "bus.stuck_s": "write `lease_without_renewal_s`",
    "bus.retry_s": "the second attempt begins after 5 seconds, and each further one after twice as long",
    "bus.retry_limit_s": "ten minutes are the longest delay between two attempts",
    "bus.idle_s": "a server that `bus connect` started stops after an hour without a call",
    "bus.age_s": "a task that waited ten minutes comes before new ones of the next higher priority",
    "workspace.build_timeout_s": "a build takes ten minutes at most",
    "discovery.embedder": "search ranks by words; [discovery.reranker] lets a model rank the best results",
    "discovery.reranker.url": _MODEL,
    "discovery.reranker.model": _MODEL,
    "discovery.reranker.key": _MODEL,
    "discovery.reranker.key_env": _MODEL,
    "discovery.reranker.candidates": "the 30 best results are reranked",
    "workspace.files": "250,000 files of one repository are indexed",
    "models.*.key_env": 'write `key = "${VAR}"`',
    "models.*.key_file": 'write `key = "${file:PATH}"`',
    "models.*.max_output_tokens": "a call sets the limit of its answer",
    "groups.*.tags": "a group has the tags that all its servers have",
    "apis.*.response_limit_bytes": "8 MiB of an answer are read",
    "apis.*.budget_tokens": "there is a warning where the tools take more than 25,000 tokens to list",
    "apis.*.refresh_s": "a document at a URL is fetched again every five minutes",
    "peers.*.token_env": 'write `token = "${VAR}"`',
    "export.*.batch": "a request has 500 entries at most",
    "export.*.secret_env": 'write `secret = "${VAR}"`',
    "export.*.headers_env": 'write `headers = {Authorization = "Bearer ${VAR}"}`',
    "retention": "`days`, `mb` and `archive` are in [audit]",
    **{f"retention.{key}": f"write `audit.{key}`" for key in ("days", "mb", "archive")},
    "login.url": "write it as `http.public_url`",
    "login.refresh_s": "a refresh token is valid until the login ends, after `login.login_s`",
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
    "results.limit_bytes": "write `limit_tokens`: a token is 4 bytes",
    "results.rules.*.limit_bytes": "write `limit_tokens`: a token is 4 bytes",
    "results.rules.*.blob_bytes": "`results.blob_bytes` counts for all calls",
    "results.rules.*.whole": "write `limit_tokens = 0`",
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
