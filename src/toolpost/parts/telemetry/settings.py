"""`[telemetry]`, and the standard variables of OpenTelemetry, which win over it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED

Signal = Literal["traces", "metrics"]
Protocol = Literal["http/protobuf", "grpc"]

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_ENDPOINTS: Final = tuple(f"{_PREFIX}{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
_DEFAULT_ENDPOINTS: Final[dict[str, str]] = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class TelemetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """OpenTelemetry: traces and metrics over OTLP (extra `otel`). The standard `OTEL_*` variables win over this section."""

    enabled: Annotated[
        bool | None,
        Meta(description="export; if not set, where `endpoint` or a variable `OTEL_EXPORTER_OTLP_…ENDPOINT` is"),
    ] = None
    endpoint: Annotated[
        str, Meta(description="URL of an OTLP receiver, without `/v1/traces`; port 4318 here if empty")
    ] = ""
    protocol: Annotated[Protocol, Meta(description="`http/protobuf` or `grpc`", extra=ADVANCED)] = "http/protobuf"
    sample: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of the traces that begin here; others keep their caller's decision",
            extra=ADVANCED,
        ),
    ] = 1.0
    content: Annotated[
        bool,
        Meta(
            description="put arguments, results and error messages on spans; secrets are redacted by their names",
            extra=ADVANCED,
        ),
    ] = False


TELEMETRY: Final = Section(name="telemetry", struct=TelemetrySettings, default=TelemetrySettings())


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where and how one signal is sent."""

    url: str
    protocol: Protocol
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0
    is_compressed: bool = False
    certificate: str | None = None
    client_key: str | None = None
    client_certificate: str | None = None


@dataclass(frozen=True, kw_only=True)
class TelemetrySpec:
    """All that is exported, and how: the section and the variables together."""

    traces: Destination | None
    metrics: Destination | None
    resource: Mapping[str, str]
    is_parent_based: bool = True
    """Whether a caller's decision to sample its trace is kept."""
    ratio: float = 1.0
    """The share of the other traces that is sampled."""
    has_content: bool = False
    interval_s: float = 60.0
    queue_limit: int = 16_384
    batch_size: int = 2_048
    delay_s: float = 5.0


OFF_HINT: Final = "set telemetry.endpoint or OTEL_EXPORTER_OTLP_ENDPOINT, or telemetry.enabled = false"


def has_no_receiver(settings: TelemetrySettings, variables: Mapping[str, str] = os.environ) -> bool:
    """Whether the section is set, and telemetry off because no receiver is named.

    That is no error: production may name it by a variable, which other machines lack.
    """
    return settings != TELEMETRY.default and settings.enabled is None and not is_enabled(settings, variables)


def is_enabled(settings: TelemetrySettings, variables: Mapping[str, str] = os.environ) -> bool:
    """Whether anything is exported."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if settings.enabled is not None:
        return settings.enabled
    return bool(settings.endpoint) or is_asked_by_variables(variables)


def is_asked_by_variables(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable names a receiver."""
    return any(variables.get(name, "").strip() for name in _ENDPOINTS)


def resolve(
    settings: TelemetrySettings, variables: Mapping[str, str] = os.environ, resource: Mapping[str, str] | None = None
) -> TelemetrySpec:
    """Combine the section with the variables; raises BadConfiguration for a value that makes no sense."""
    is_parent_based, ratio = _read_sampler(settings, variables)
    return TelemetrySpec(
        traces=_find_destination("traces", settings, variables),
        metrics=_find_destination("metrics", settings, variables),
        resource=_find_resource(variables, resource or {}),
        is_parent_based=is_parent_based,
        ratio=ratio,
        has_content=settings.content or variables.get(_CAPTURE, "").strip().lower() == "true",
        interval_s=_read_number(variables, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        queue_limit=int(_read_number(variables, "OTEL_BSP_MAX_QUEUE_SIZE", 16_384)),
        batch_size=int(_read_number(variables, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 2_048)),
        delay_s=_read_number(variables, "OTEL_BSP_SCHEDULE_DELAY", 5000) / 1000,
    )


def _find_destination(signal: Signal, settings: TelemetrySettings, variables: Mapping[str, str]) -> Destination | None:
    """Return where a signal goes; None if `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` says `none`."""
    if (exporter := variables.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").strip()) not in ("", "otlp"):
        if exporter != "none":
            raise BadConfiguration(
                f"OTEL_{signal.upper()}_EXPORTER: `{exporter}` is not supported, only `otlp` or `none`."
            )
        return None

    def read(name: str, default: str = "") -> str:
        own, shared = variables.get(f"{_PREFIX}{signal.upper()}_{name}", ""), variables.get(_PREFIX + name, "")
        return own.strip() or shared.strip() or default

    protocol = read("PROTOCOL", settings.protocol)
    if protocol not in ("http/protobuf", "grpc"):
        raise BadConfiguration(f"{_PREFIX}PROTOCOL: `{protocol}` is not supported, only `http/protobuf` or `grpc`.")
    own = variables.get(f"{_PREFIX}{signal.upper()}_ENDPOINT", "").strip()
    url = own or variables.get(f"{_PREFIX}ENDPOINT", "").strip() or settings.endpoint or _DEFAULT_ENDPOINTS[protocol]
    if protocol == "http/protobuf" and not own:
        # As the specification has it: the URL of a signal is used as it is, the common one is a base.
        url = f"{url.rstrip('/')}/v1/{signal}"
    if not url.startswith(("http://", "https://")):
        raise BadConfiguration(
            f"telemetry.endpoint: `{url}` is no URL of a receiver.", hint="as in http://localhost:4318"
        )
    return Destination(
        url=url,
        protocol=protocol,  # type: ignore[arg-type]
        headers=_split_pairs(read("HEADERS")),
        timeout_s=_read_number({"": read("TIMEOUT")}, "", 10_000) / 1000,
        is_compressed=read("COMPRESSION") == "gzip",
        certificate=read("CERTIFICATE") or None,
        client_key=read("CLIENT_KEY") or None,
        client_certificate=read("CLIENT_CERTIFICATE") or None,
    )


def _find_resource(variables: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    found = {**known, "service.name": "toolpost"}
    found |= _split_pairs(variables.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if name := variables.get("OTEL_SERVICE_NAME", "").strip():
        found["service.name"] = name
    return found


def _read_sampler(settings: TelemetrySettings, variables: Mapping[str, str]) -> tuple[bool, float]:
    name = variables.get("OTEL_TRACES_SAMPLER", "").strip()
    if not name:
        return True, settings.sample
    kind = name.removeprefix("parentbased_")
    ratios = {"always_on": 1.0, "always_off": 0.0}
    if kind == "traceidratio":
        ratios[kind] = min(1.0, _read_number(variables, "OTEL_TRACES_SAMPLER_ARG", 1.0))
    if kind not in ratios:
        raise BadConfiguration(
            f"OTEL_TRACES_SAMPLER: `{name}` is not supported.", hint="as in parentbased_traceidratio"
        )
    return kind != name, ratios[kind]


def _read_number(variables: Mapping[str, str], name: str, default: float) -> float:
    text = variables.get(name, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise BadConfiguration(f"{name or _PREFIX + 'TIMEOUT'}: `{text}` is not a number.")
    return number


def _split_pairs(text: str) -> dict[str, str]:
    """Split `key=value,key=value`, whose values may be percent-encoded."""
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {key.strip(): unquote(value.strip()) for key, _, value in pairs if key.strip()}
