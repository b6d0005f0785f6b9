"""How to add an agent, for a chat that has none."""

from typing import Final

import click

from toolpost.settings import CONFIG_NAME

EXAMPLE: Final = """\
[agents.claude]                     # Claude Code, as it is logged in on this machine
kind = "claude"

[agents.gemini]                     # or any program that speaks the Agent Client Protocol
command = "gemini"
args = ["--experimental-acp"]
"""


def explain_agents() -> None:
    """Show on stderr what to write into the configuration, and what to do then."""
    shown = "".join(f"    {line}" if line.strip() else line for line in EXAMPLE.splitlines(keepends=True))
    click.echo(
        f"\nAdd one to the gateway's {CONFIG_NAME}:\n\n{shown}\n"
        "Both need the extra `harness`: pip install 'toolpost[harness]' adds it to an installation.\n"
        "`toolpost doctor` tries each agent. A gateway that runs already takes it up when it is restarted.",
        err=True,
    )
