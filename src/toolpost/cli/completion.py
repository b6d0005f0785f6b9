"""`toolpost completion`: the script by which a shell completes commands, options and tool names."""

import click
from click.shell_completion import get_completion_class

from toolpost.terminal.epilog import examples

_PROGRAM = "toolpost"


@click.command(
    epilog=examples(
        ('eval "$(toolpost completion bash)"', "in ~/.bashrc"),
        ('eval "$(toolpost completion zsh)"', "in ~/.zshrc"),
        ("toolpost completion fish | source", "in ~/.config/fish/config.fish"),
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE")
    # Not `source()`: that starts bash to check its version.
    click.echo(script.source_template % script.source_vars())
