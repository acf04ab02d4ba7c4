"""A group of commands that are imported when they are named, listed in its help by section."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """``table``: section of the help → command → ``module:name`` of where it is; asked when a command is named."""

    def __init__(self, *args: Any, table: Callable[[], Mapping[str, Mapping[str, str]]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._table = table

    @functools.cached_property
    def table(self) -> Mapping[str, Mapping[str, str]]:
        """The commands by section."""
        return self._table()

    def _all(self) -> Iterator[tuple[str, str]]:
        for section in self.table.values():
            yield from section.items()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return [name for name, _ in self._all()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one."""
        place = dict(self._all()).get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section."""
        width = max(len(name) for name, _ in self._all())
        for title, section in self.table.items():
            rows = []
            for name in section:
                command = self.get_command(ctx, name)
                if command is not None:
                    rows.append((name.ljust(width), command.get_short_help_str(limit=90)))
            with formatter.section(title):
                formatter.write_dl(rows)
