"""Checks of models for `toolpost doctor`: their keys and agents."""

from collections.abc import Sequence
from pathlib import Path

from toolpost.contracts import BadConfiguration
from toolpost.parts import PartDoctor
from toolpost.parts.models.settings import GROUPS, ModelSettings, enabled_models, read_key
from toolpost.settings import Config, is_trustworthy
from toolpost.store import shown_url
from toolpost.terminal import Diagnosis, note, ok, problem, warning


class ModelsDoctor(PartDoctor):
    """Looks at the settings; asks no model, which may cost money."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Check every model and every group."""
        findings = [_check_model(config, name, model) for name, model in enabled_models(config).items()]
        for name, group in GROUPS.of(config).items():
            if missing := [server for server in group.servers if server not in config.servers]:
                findings.append(
                    problem("groups", f"`{name}`: there is no server `{missing[0]}`", hint="add it, or remove it")
                )
            else:
                findings.append(ok("groups", f"`{name}`: {', '.join(group.servers)}"))
        if not findings and "models" in config.plugins.bundled:
            findings.append(note("models", "none is configured: `router_call` has nothing to ask"))
        return findings

    def without_faults(self, config: Config) -> Config:
        """Leave out groups: plugins are looked at without servers, and a group without its servers keeps the part closed."""
        return GROUPS.put(config, {})


def _check_model(config: Config, name: str, model: ModelSettings) -> Diagnosis:
    if model.agent is not None:
        if model.agent in config.parts.get("agents", {}):
            return ok("models", f"`{name}`: the agent `{model.agent}`")
        return problem("models", f"`{name}`: there is no agent `{model.agent}`", hint=f"add [agents.{model.agent}]")
    try:
        key = read_key(name, model, project=Path(config.project))
    except BadConfiguration as error:
        return problem("models", error.message, hint=error.hint)
    if key is not None and not is_trustworthy(model.url or ""):
        return warning("models", f"`{name}`: its key is sent without encryption", hint="use an https:// URL")
    return ok("models", f"`{name}`: {model.model or name} at {shown_url(model.url or '')}")
