"""``strata plan`` and ``strata apply`` of a site repository: what 'strata config' does, by the words people try first.

Both commands are about desires and files, too. A directory, or an option that only a repository has, says that the
repository is meant; in a repository, so does saying nothing. Which commands know repositories is not known here: they
are asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

MARK = ".strata"
"""The folder that every repository has which Strata wrote: its schema lies there."""
_LAYERS = ("systems", "site", "vendor")
_OPTIONS = ("--branch", "--commit", "--system", "--rollout", "--at-once", "--remove-most")


def is_repository(directory: Path) -> bool:
    """Whether a directory is a site repository."""
    return (directory / MARK).is_dir() or ((directory / ".git").exists() and has_layers(directory))


def has_layers(directory: Path) -> bool:
    """Whether a directory has a folder that site repositories have."""
    return any((directory / folder).is_dir() for folder in (MARK, *_LAYERS))


class OfRepository(click.Command):
    """A command that is ``strata config NAME`` where a repository is meant."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of whichever is meant."""
        if parent is not None and info_name is not None and self._is_meant(args):
            if all(word.startswith("-") for word in args):
                click.echo(f"the repository in {Path.cwd()}", err=True)
            group = parent.command.get_command(parent, "config") if isinstance(parent.command, click.Group) else None
            if isinstance(group, click.Group) and (other := group.get_command(parent, self._name(args))):
                return other.make_context(info_name, [word for word in args if word != "--dry-run"], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def _name(self, args: list[str]) -> str:
        return "plan" if "--dry-run" in args else str(self.name)

    def _is_meant(self, args: list[str]) -> bool:
        if any(word in ("-h", "--help", "-f", "--file") or word.startswith(("-f", "--file=")) for word in args):
            return False
        if any(word.split("=")[0] in _OPTIONS for word in args):
            return True
        words = [word for word in args if not word.startswith("-")]
        if any(word.endswith("/") or word in (".", "..") or _is_place(Path(word), word) for word in words):
            return True
        return not words and "--prune" not in args and is_repository(Path())


def _is_place(path: Path, word: str) -> bool:
    return path.is_dir() and ("/" in word or is_repository(path))


def of_repository(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a repository, for the help: whoever gives one is answered by ``strata config``."""
    for name, metavar, told in (
        ("--at-once", None, "Of a repository: change all nodes at once, whatever its rollout-policy says."),
        ("--rollout", None, "Of a repository: change nodes in waves, with a canary, checks and rollback."),
        ("--system", "NAME", "Of a repository: the system of systems/NAME/; needed if there are several."),
        ("--commit", "COMMIT", "Of a repository: apply this commit instead of the checked-out one."),
        ("--branch", "NAME", "Of a repository: apply this branch instead of the checked-out commit."),
    ):
        flag: dict[str, Any] = {"is_flag": True} if metavar is None else {"metavar": metavar}
        function = click.option(name, expose_value=False, help=told, **flag)(function)
    return function
