"""Checks of APIs for `toolpost doctor`: their documents and operations."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from anyio import to_thread

from toolpost import ToolpostError
from toolpost.parts import PartDoctor
from toolpost.parts.openapi.document import load_document
from toolpost.parts.openapi.settings import BUDGET_TOKENS, ApiSettings, enabled_apis, resolve_api
from toolpost.parts.openapi.tools import ApiTools, make_tools
from toolpost.settings import Config, is_trustworthy
from toolpost.terminal import Diagnosis, ok, problem, warning
from toolpost.upstreams import ServerSpec

SHOWN: Final = 20

_OF_NO_OPERATION: Final = frozenset({"openid", "profile", "email", "offline_access"})
"""Scopes of OpenID Connect, which concern the login itself."""


class ApisDoctor(PartDoctor):
    """Reads the documents; calls no operation."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Check every API."""
        return [each for name, api in enabled_apis(config).items() for each in await _check(config, name, api)]


async def _check(config: Config, name: str, api: ApiSettings) -> list[Diagnosis]:
    try:
        spec = resolve_api(config, name, api)
        place = f"apis.{name}.document"
        document = await load_document(api.document, project=Path(config.project), place=place, network=spec.network)
        make = partial(make_tools, document, name, allow=api.allow, deny=api.deny, has_results=api.results == "enforce")
        made = await to_thread.run_sync(make)
    except ToolpostError as error:
        return [problem("apis", f"`{name}`: {error.message}", hint=error.hint)]
    has_keys = bool(api.security or spec.headers or spec.own_headers or spec.auth)
    found = [ok("apis", f"`{name}`: {describe(made)}, at {spec.url}")]
    if has_keys and not is_trustworthy(spec.url or ""):
        found.append(warning("apis", f"`{name}`: its keys are sent without encryption", hint="use an https:// URL"))
    if made.tokens > BUDGET_TOKENS:
        hint = 'select operations with `allow` and `deny`, or set results = "off"'
        found.append(warning("apis", f"`{name}`: its tools take about {made.tokens:,} tokens to list", hint=hint))
    found += _check_scopes(name, spec, made)
    if made.omitted:
        lines = tuple(f"{each.shown}: {each.reason}" for each in made.omitted[:SHOWN])
        message = f"`{name}`: {len(made.omitted)} operations are left out"
        found.append(replace(warning("apis", message), lines=lines))
    return found


def _check_scopes(name: str, spec: ServerSpec, made: ApiTools) -> Iterator[Diagnosis]:
    """Compare the scopes of the settings with those of the operations: `allow` and `deny` may have changed since the import."""
    if spec.auth is None or spec.auth.scopes is None or (wanted := made.login_scopes) is None:
        return
    asked, needed = spec.auth.scopes, wanted[1]
    if unused := [scope for scope in asked if scope not in needed and scope not in _OF_NO_OPERATION]:
        message = f"`{name}`: logins ask for scopes that no selected operation needs: {', '.join(unused)}"
        yield warning("apis", message, hint=f"remove them from apis.{name}.auth.scopes")
    if missing := [scope for scope in needed if scope not in asked]:
        message = f"`{name}`: logins do not ask for scopes that selected operations need: {', '.join(missing)}"
        yield warning("apis", message, hint=f"add them to apis.{name}.auth.scopes")


def describe(made: ApiTools) -> str:
    """Say what becomes of a document, in half a sentence."""
    tools = "1 tool" if len(made.tools) == 1 else f"{len(made.tools)} tools"
    return f"{tools} of about {made.tokens:,} tokens"
