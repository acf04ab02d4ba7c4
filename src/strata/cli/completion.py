"""``strata completion``: the script that makes a shell complete commands, options, groups and nodes."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Example: strata completion bash > ~/.local/share/bash-completion/completions/strata
             strata completion fish | source
    """
    from click.shell_completion import get_completion_class

    from strata.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "strata", "_STRATA_COMPLETE")
    # Not .source(): for bash it would run bash to ask for its version, and this may be a build machine.
    click.echo(script.source_template % script.source_vars())
