"""A group of commands that are imported when they are named, listed in its help by section."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

WIDEST = 90
"""Characters of a command's line in the help of its group."""
_MOST_MEANT = 3
_WHOLE = 1000
"""Characters of a first sentence: more than any has."""


class LazyGroup(click.Group):
    """``members``: section of the help, command, ``module:name`` of where it is; asked when a command is named, up to
    that one. ``elsewhere``: words that people look for in this group → the whole command that does it."""

    def __init__(
        self,
        *args: Any,
        members: Callable[[], Iterable[tuple[str, str, str]]],
        elsewhere: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._members = members
        self._elsewhere = elsewhere

    @functools.cached_property
    def table(self) -> Mapping[str, Mapping[str, str]]:
        """Section of the help → command → where it is."""
        found: dict[str, dict[str, str]] = {}
        for section, name, place in self._members():
            found.setdefault(section, {})[name] = place
        return found

    def _all(self) -> Iterator[tuple[str, str]]:
        for section in self.table.values():
            yield from section.items()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return [name for name, _ in self._all()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one."""
        place = next((place for _, name, place in self._members() if name == cmd_name), None)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        _in_full(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was named, or an error that says which may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = " or ".join(map(repr, self._meant(ctx, args[0])))
            more = f" Did you mean {meant}?" if meant else ""
            raise click.UsageError(f"{error.message}{more}", error.ctx) from None

    def _meant(self, ctx: click.Context, word: str) -> list[str]:
        """Whole commands that ``word`` may stand for: spelled nearly so here, or of that name one level below."""
        if word in self._elsewhere:
            return [self._elsewhere[word]]
        import difflib  # only here: commands start fast

        names = self.list_commands(ctx)
        found = difflib.get_close_matches(word, names, n=2, cutoff=0.7)
        for name in names if ctx.parent is None and not found else ():
            member = self.get_command(ctx, name)
            if isinstance(member, click.Group) and word in member.list_commands(ctx):
                found.append(f"{name} {word}")
        return [f"{ctx.command_path} {name}" for name in found[:_MOST_MEANT]]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section."""
        width = max(len(name) for name, _ in self._all())
        for title, section in self.table.items():
            rows = [(name.ljust(width), self._line(ctx, name, place)) for name, place in section.items()]
            with formatter.section(title):
                formatter.write_dl(rows)

    def _line(self, ctx: click.Context, name: str, place: str) -> str:
        known = help_lines().get(place)
        if known is not None:
            return known
        command = self.get_command(ctx, name)
        assert command is not None
        return command.get_short_help_str(limit=WIDEST)


def _in_full(command: click.Command) -> None:
    """Have the help of a group say to the end of the sentence what its commands do: cut off, it says nothing."""
    for member in command.commands.values() if isinstance(command, click.Group) else ():
        member.short_help = member.get_short_help_str(limit=_WHOLE)
        _in_full(member)


@functools.cache
def help_lines() -> Mapping[str, str]:
    """Where a command is → what it does, in one line, as ``docs/generate.py`` read it off the code: to import every
    command is most of what ``strata --help`` would cost."""
    text = (Path(__file__).parent / "help_lines.txt").read_text(encoding="utf-8")
    return dict(line.split(" ", 1) for line in text.splitlines())
