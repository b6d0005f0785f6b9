"""Checks of the decision trail for `toolpost doctor`: required decisions must be possible."""

from collections.abc import Sequence

from toolpost.parts import PartDoctor
from toolpost.parts.trail.settings import ALL_AGENTS, TRAIL
from toolpost.settings import Config
from toolpost.terminal import Diagnosis, ok, problem, warning


class TrailDoctor(PartDoctor):
    """Looks at the settings; `toolpost trail verify` looks at the records."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Find agents and tools that must decide and are not there."""
        settings, findings = TRAIL.of(config), []
        agents = config.parts.get("agents", {})
        for name in settings.deciding_agents:
            if name != ALL_AGENTS and name not in agents:
                findings.append(
                    problem("trail", f"deciding_agents: there is no agent `{name}`", hint=f"add [agents.{name}]")
                )
        known = {*config.plugins.bundled, *config.servers, *config.parts.get("groups", {})}
        for tool in settings.decisions:
            # A plugin of another name may be loaded: only its own code says so.
            if tool.partition("__")[0] not in known and not config.plugins.load:
                findings.append(
                    warning("trail", f"decisions: no server or plugin has `{tool}`", hint="name it as it is listed")
                )
        if settings.requires_decisions and not findings:
            required = [*settings.decisions, *(f"turns of {name}" for name in settings.deciding_agents)]
            findings.append(ok("trail", f"a decision is required by {', '.join(required)}"))
        return findings
