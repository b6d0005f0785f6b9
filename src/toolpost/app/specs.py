"""Which of the configured servers a single call needs."""

from collections.abc import Sequence

from toolpost.discovery.views import SEPARATOR
from toolpost.host.contributions import Background, Contributions
from toolpost.manifest import bundled_parts
from toolpost.providers import ProviderFilter
from toolpost.providers.plugins import Plugins
from toolpost.upstreams.spec import ServerSpec


def select_servers(
    tool: str, specs: Sequence[ServerSpec], plugins: Plugins, contributions: Contributions
) -> Sequence[ServerSpec]:
    """Select the servers that a call of this tool needs: all of them where its name does not tell."""
    bundled = {part.name for part in bundled_parts()}
    # A group has tools of several servers, and another package's part may call any tool.
    if contributions.all(ProviderFilter) or not bundled.issuperset(part for part, _ in contributions.named(Background)):
        return specs
    owner = tool.partition(SEPARATOR)[0]
    if named := [spec for spec in specs if spec.name == owner]:
        return named
    return () if any(plugin.name == owner for plugin in plugins.plugins) else specs
