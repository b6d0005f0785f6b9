"""`[models.NAME]`, `[router]` and `[groups.NAME]`: which models there are, how one is chosen, which servers are alike."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from toolpost.base import remember_secrets
from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED, SECRET, Config, Seconds, read_secret

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]*"
ModelName = Annotated[str, Meta(pattern=f"^{_NAME}$", max_length=64)]
GroupName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$", max_length=32)]

CALL_TIMEOUT_S: Final = 120.0
"""Time limit of `router_call`, with all attempts."""

Tokens = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]
Weight = Annotated[float, Meta(ge=0, le=1_000)]


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model behind an OpenAI-compatible endpoint, or an agent of `[agents]`."""

    url: Annotated[str | None, Meta(description="URL of its API, such as http://127.0.0.1:11434/v1")] = None
    model: Annotated[str, Meta(description="the endpoint's name of the model; the name of the entry, if not set")] = ""
    api: Annotated[
        Literal["chat", "responses"], Meta(description="chat completions, or the Responses API", extra=ADVANCED)
    ] = "chat"
    key: Annotated[
        str | None, Meta(description="the API key, such as `${API_KEY}` or `${file:api.key}`", extra=SECRET)
    ] = None
    agent: Annotated[str | None, Meta(description="instead of a URL: an agent of `[agents]` that answers")] = None
    context: Annotated[Tokens | None, Meta(description="context window, in tokens", extra=ADVANCED)] = None
    input_price: Annotated[Price, Meta(description="price of a million input tokens", extra=ADVANCED)] = 0.0
    output_price: Annotated[Price, Meta(description="price of a million output tokens", extra=ADVANCED)] = 0.0
    skills: Annotated[list[str], Meta(description="its skills, such as `code` or `summaries`")] = []
    domains: Annotated[list[str], Meta(description="fields that it knows, such as `law`", extra=ADVANCED)] = []
    description: Annotated[
        str, Meta(description="its purpose, in a sentence; prompts are compared with it", extra=ADVANCED)
    ] = ""
    preference: Annotated[Share, Meta(description="how much it is preferred to others, from 0 to 1")] = 0.5
    enabled: Annotated[bool, Meta(description="false turns it off")] = True


class WeightSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Weights of a score; only the proportions matter."""

    domain: Annotated[Weight, Meta(description="how well its domains fit", extra=ADVANCED)] = 2.0
    skill: Annotated[Weight, Meta(description="how well its skills fit", extra=ADVANCED)] = 2.0
    context: Annotated[Weight, Meta(description="how much room its context window leaves", extra=ADVANCED)] = 1.0
    cost: Annotated[Weight, Meta(description="its price", extra=ADVANCED)] = 1.0
    latency: Annotated[Weight, Meta(description="how soon it has answered", extra=ADVANCED)] = 1.0
    reliability: Annotated[Weight, Meta(description="how often it has answered", extra=ADVANCED)] = 2.0
    preference: Annotated[Weight, Meta(description="the preference of the operator or of the call", extra=ADVANCED)] = (
        1.0
    )


class RouterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The choice of a model, and its failures."""

    attempt_s: Annotated[Seconds, Meta(description="time limit of one attempt", extra=ADVANCED)] = 30.0
    sampling: Annotated[
        bool,
        Meta(description="answer sampling requests of servers where the client of the call does not", extra=ADVANCED),
    ] = False
    weights: WeightSettings = WeightSettings()


class GroupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Servers that can stand in for each other."""

    servers: Annotated[list[str], Meta(description="servers of `[servers]`, the preferred one first")] = []
    idempotent: Annotated[
        list[str],
        Meta(description="tools that may be called twice, besides those whose servers say so", extra=ADVANCED),
    ] = []


def check_model(name: str, model: ModelSettings) -> None:
    """Raise `BadConfiguration` for settings that contradict each other."""
    place = f"models.{name}"
    if not re.fullmatch(_NAME, name) or len(name) > 64:
        raise BadConfiguration(
            f"models.`{name}`: a model's name may contain letters, digits, `.`, `_`, `:` and `-`.",
            hint="rename it, and set `model` to the endpoint's own name",
        )
    if (model.url is None) == (model.agent is None):
        raise BadConfiguration(
            f"{place} needs either a `url` or an `agent`.",
            hint="set `url` to an OpenAI-compatible API, or `agent` to a name of [agents]",
        )
    if model.agent is not None and model.key is not None:
        raise BadConfiguration(f"{place}: an agent takes no key here.", hint="set it in the agent's own `env`")


def check_group(name: str, group: GroupSettings) -> None:
    """Raise `BadConfiguration` for a group of fewer than two servers."""
    if len(set(group.servers)) < 2 or len(set(group.servers)) != len(group.servers):
        raise BadConfiguration(
            f"groups.{name}: a group has two or more different servers.", hint='servers = ["first", "second"]'
        )


def read_key(name: str, model: ModelSettings, *, project: Path) -> str | None:
    """Read a model's key, None if it needs none; logs and errors conceal it from now on. Raises `BadConfiguration`."""
    if model.key is None:
        return None
    key = read_secret(model.key, project=project, place=f"models.{name}.key")
    remember_secrets([key])
    return key


MODELS: Final[Section[dict[str, ModelSettings]]] = Section(
    name="models",
    struct=ModelSettings,
    table=Annotated[dict[ModelName, ModelSettings], Meta(description="models that the router chooses from, by name")],
    default={},
    check_entry=check_model,
)

ROUTER: Final = Section(name="router", struct=RouterSettings, default=RouterSettings())

GROUPS: Final[Section[dict[str, GroupSettings]]] = Section(
    name="groups",
    struct=GroupSettings,
    table=Annotated[
        dict[GroupName, GroupSettings], Meta(description="servers whose common tools become one tool, by name")
    ],
    default={},
    check_entry=check_group,
)


def enabled_models(config: Config) -> dict[str, ModelSettings]:
    """Return the models that are not turned off."""
    return {name: model for name, model in MODELS.of(config).items() if model.enabled}
