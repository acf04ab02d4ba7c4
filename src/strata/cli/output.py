"""How answers look: tables, JSON, colours, folded nodesets. Rich on a terminal, plain aligned text in a pipe.

Whatever came from outside (host names, device strings, reasons that people typed) is shown without control
characters, so that nothing stored in the fleet can drive the terminal of whoever lists it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

import click

from strata.core.printable import clean
from strata.core.units import many as many

if TYPE_CHECKING:
    from rich.console import Console

STATE_COLOURS = {
    "ready": "green",
    "off": "white",
    "done": "green",
    "converging": "cyan",
    "running": "cyan",
    "plan": "cyan",
    "observe": "yellow",
    "waiting": "yellow",
    "pending": "yellow",
    "held": "magenta",
    "frozen": "blue",
    "faulted": "red",
    "failed": "red",
    "unreachable": "red",
    "cancelled": "magenta",
    "unmanaged": "bright_black",
    "unknown": "bright_black",
}
"""Colour of a node's, plan's or operation's state."""

STATE_ORDER = (
    "ready", "off", "converging", "waiting", "held", "frozen", "faulted", "unreachable", "unknown", "unmanaged",
)  # fmt: skip
"""The states of nodes, in the order in which people want to read them."""
AT_GOAL = ("ready", "off")
"""Those of nodes that are as they are wanted."""

_RICH_ROWS = 1000
"""Above this a table is printed plainly even on a terminal: rich takes a millisecond or so for a row."""


def state_colour(text: str) -> str:
    """The colour for a state, or none."""
    return STATE_COLOURS.get(text, "")


class Column(NamedTuple):
    """A column of a table: its title, which colour a cell has, which way it is aligned."""

    title: str
    colour: Callable[[str], str] | None = None
    right: bool = False


class Output:
    """Standard output as commands use it, with notes on standard error."""

    def __init__(self, *, colour: bool = True, stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._colour = colour

    @property
    def stdout(self) -> IO[str]:
        """Where answers go."""
        return self._stdout or sys.stdout

    @property
    def stderr(self) -> IO[str]:
        """Where progress and notes go."""
        return self._stderr or sys.stderr

    @property
    def terminal(self) -> bool:
        """Whether a person looks at the answer."""
        return self.stdout.isatty()

    @property
    def colour(self) -> bool:
        """Whether the answer may have colours."""
        return self._colour and self.terminal

    def paint(self, text: str, colour: str) -> str:
        """``text`` in ``colour``, where colours are seen."""
        return click.style(text, fg=colour) if colour and self.colour else text

    def line(self, text: object = "", *, colour: str = "") -> None:
        """One line of the answer."""
        self.stdout.write(self.paint(clean(text), colour) + "\n")

    def text(self, text: str) -> None:
        """A text of many lines, such as a file: each on a line of its own."""
        for line in text.splitlines():
            self.line(line)

    def note(self, text: object) -> None:
        """One line to the person, beside the answer."""
        self.stderr.write(clean(text) + "\n")

    def json(self, data: object) -> None:
        """The answer for programs."""
        import msgspec

        # The standard library indents in Python: several seconds for a list of a large fleet.
        text = msgspec.json.format(json.dumps(data, ensure_ascii=True, separators=(",", ":")), indent=2)
        self.stdout.write(text + "\n")

    def answer(self, as_json: bool, data: object, text: object, *, colour: str = "") -> None:
        """The answer: ``data`` for programs, or ``text`` for people."""
        if as_json:
            self.json(data)
        else:
            self.line(text, colour=colour)

    def json_line(self, data: object) -> None:
        """One object on one line: for streams."""
        self.stdout.write(json.dumps(data, separators=(",", ":"), ensure_ascii=True) + "\n")

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values, one pair on a line; empty values are left out."""
        shown = [(name, clean(value)) for name, value in pairs if value not in ("", None)]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            label = click.style(f"{name:<{width}}", bold=True) if self.colour else f"{name:<{width}}"
            self.stdout.write(f"{label}  {self.paint(value, state_colour(value) if name == 'state' else '')}\n")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
        """A table with a heading; nothing at all in a pipe but aligned text."""
        cells = [[clean(cell) for cell in row] for row in rows]
        if self.terminal and len(cells) <= _RICH_ROWS:
            self._rich_table(columns, cells)
        else:
            self._plain_table(columns, cells)

    def _plain_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        titles = [column.title.upper() for column in columns]
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        lines = []
        for row in (titles, *rows):
            padded = [
                cell.rjust(width) if column.right else cell.ljust(width)
                for cell, width, column in zip(row, widths, columns, strict=True)
            ]
            lines.append("  ".join(padded).rstrip() + "\n")
        self.stdout.write("".join(lines))

    def _rich_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
        for column in columns:
            table.add_column(column.title.upper(), justify="right" if column.right else "left", overflow="fold")
        for row in rows:
            table.add_row(
                *(
                    Text(cell, style=column.colour(cell) if column.colour else "")
                    for cell, column in zip(row, columns, strict=True)
                )
            )
        self.console().print(table)

    def console(self, *, error: bool = False) -> Console:
        """A rich console on the answer's side, or on the notes' side."""
        from rich.console import Console

        return Console(
            file=self.stderr if error else self.stdout, no_color=not self._colour, highlight=False, markup=False
        )


def fold(names: Iterable[str]) -> str:
    """Names as one nodeset: ``n[1-4,7]``."""
    from strata.core.nodeset import fold as folded

    return folded(names)


def counts(by_state: dict[str, int]) -> str:
    """Counts by state in words: ``200 ready, 50 converging, 6 faulted``."""
    known = [(state, by_state[state]) for state in STATE_ORDER if by_state.get(state)]
    known += [(state, count) for state, count in sorted(by_state.items()) if count and state not in STATE_ORDER]
    return ", ".join(f"{count} {state}" for state, count in known) or "no nodes"
