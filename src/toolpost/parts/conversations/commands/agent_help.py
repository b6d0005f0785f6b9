"""Help for a chat without an agent: how to configure one."""

from typing import Final

import click

from toolpost.settings import CONFIG_NAME

EXAMPLE: Final = """\
[agents.claude]                     # Claude Code, as it is logged in on this machine
kind = "claude"

[agents.gemini]                     # or any program that implements the Agent Client Protocol
command = "gemini"
args = ["--experimental-acp"]
"""


def explain_agents() -> None:
    """Print an example of the configuration, and the next steps, to stderr."""
    indented = "".join(f"    {line}" if line.strip() else line for line in EXAMPLE.splitlines(keepends=True))
    click.echo(
        f"\nAdd one to the gateway's {CONFIG_NAME}:\n\n{indented}\n"
        "Both need the extra `harness`: pip install 'toolpost[harness]' adds it to an installation.\n"
        "`toolpost doctor` tries each agent. Restart a gateway that runs already, to have it use the agent.",
        err=True,
    )
