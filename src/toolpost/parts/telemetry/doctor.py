"""Checks of telemetry for `toolpost doctor`."""

import socket
from collections.abc import Sequence
from importlib.util import find_spec
from urllib.parse import urlsplit

from anyio import to_thread

from toolpost.parts import PartDoctor
from toolpost.parts.telemetry.settings import OFF_HINT, TELEMETRY, Destination, has_no_receiver, is_enabled, resolve
from toolpost.settings import Config
from toolpost.store import shown_url
from toolpost.terminal import Diagnosis, note, ok, problem, warning

_CONNECT_LIMIT_S = 2.0


class TelemetryDoctor(PartDoctor):
    """Looks at packages and receivers."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Say whether spans and metrics can be sent; nothing where telemetry is off."""
        settings = TELEMETRY.of(config)
        if not is_enabled(settings):
            is_meant = has_no_receiver(settings)
            return [warning("telemetry", "off: no receiver is named", hint=OFF_HINT)] if is_meant else []
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
            return [
                problem(
                    "telemetry",
                    "[telemetry] needs the extra `otel`, which is not installed",
                    hint='pip install "toolpost[otel]"',
                )
            ]
        spec = resolve(settings)
        found = {each.url: each for each in (spec.traces, spec.metrics) if each is not None}
        if not found:
            return [note("telemetry", "neither traces nor metrics are sent")]
        return [await to_thread.run_sync(_check, destination) for destination in found.values()]


def _check(destination: Destination) -> Diagnosis:
    parts = urlsplit(destination.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), _CONNECT_LIMIT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "start the receiver, or correct telemetry.endpoint; calls are served all the same"
        return warning("telemetry", f"no receiver at {shown_url(destination.url)}: {reason}", hint=hint)
    return ok("telemetry", f"{shown_url(destination.url)} ({destination.protocol})")
