"""What commands that answer offer: ``--json``; a listing, which is declared as fields, also ``--columns`` (of both),
``--sort`` and ``--match``. The command gets its ``Session`` as first argument."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from strata.cli.output import Column
from strata.cli.session import Session, pass_session
from strata.cli.times import when

if TYPE_CHECKING:
    from strata.cli.client import Json

F = TypeVar("F", bound=Callable[..., Any])


class Field(NamedTuple):
    """One thing to show of an item: how it reads, and what it sorts by if not by its text."""

    name: str
    text: Callable[[Json], object]
    key: Callable[[Json], Any] | None = None
    colour: Callable[[str], str] | None = None
    right: bool = False
    shown: bool = True
    """Whether it is there without ``--columns``."""


class Listing(NamedTuple):
    """How the person wants the listing."""

    json: bool
    columns: tuple[str, ...]
    sort: str
    match: tuple[tuple[str, str], ...]


def plain(name: str, *, shown: bool = True, colour: Callable[[str], str] | None = None) -> Field:
    """A field of the item that is shown as it is."""
    return Field(name, lambda item: _text(item.get(name)), colour=colour, shown=shown)


def number(name: str, *, shown: bool = True) -> Field:
    """A number of the item: aligned to the right, sorted by value."""
    return Field(
        name, lambda item: _text(item.get(name)), key=lambda item: item.get(name) or 0, right=True, shown=shown
    )


def moment(name: str, *, of: str = "") -> Field:
    """A time of the item, which has it under its own name or that ``of`` another."""
    key = of or name
    return Field(name, lambda item: when(item.get(key)), key=lambda item: item.get(key) or 0)


def json_option(function: F) -> F:
    """``--json`` alone, as ``as_json``: for answers that are not listings."""
    return cast("F", click.option("--json", "as_json", is_flag=True, help="Print JSON.")(pass_session(function)))


def listing(fields: Sequence[Field], *, sort: str = "") -> Callable[[F], F]:
    """Add the options to a command, which gets them as ``view: Listing``."""
    known = [field.name for field in fields]

    def chosen(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
        # As they stand in the heading, too.
        names = tuple(name.strip().lower() for name in value.split(",") if name.strip())
        for name in names:
            if name not in known:
                raise click.BadParameter(f"no column {name!r}; there are {', '.join(known)}", ctx, param)
        return names

    def ordered(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if value and value.removeprefix("-") not in known:
            raise click.BadParameter(f"no column {value.removeprefix('-')!r}; there are {', '.join(known)}", ctx, param)
        return value

    def matched(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        found = []
        for text in value:
            name, equals, pattern = text.partition("=")
            if not equals or name not in known:
                raise click.BadParameter(f"{text!r} is not COLUMN=PATTERN; there are {', '.join(known)}", ctx, param)
            found.append((name, pattern))
        return tuple(found)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(
            *args: Any,
            as_json: bool,
            columns: tuple[str, ...],
            sort: str,
            match: tuple[tuple[str, str], ...],
            **kwargs: Any,
        ) -> Any:
            return function(*args, view=Listing(as_json, columns, sort, match), **kwargs)

        options = (
            click.option(
                "--columns", default="", callback=chosen, metavar="A,B", help=f"Columns to show: {', '.join(known)}."
            ),
            click.option(
                "--sort", default=sort, callback=ordered, metavar="[-]COLUMN", help="Sort by this column; '-' reverses."
            ),
            click.option(
                "--match",
                multiple=True,
                callback=matched,
                metavar="COLUMN=PATTERN",
                help="Only rows whose column matches (* and ?).",
            ),
        )
        decorated: Any = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return cast("F", json_option(decorated))

    return decorate


def _matches(text: str, pattern: str) -> bool:
    """Whether it fits. An empty field is shown as '-', and is asked for by that; no '?' stands for it."""
    return pattern == text or fnmatch.fnmatchcase("" if text == "-" else text, pattern)


def show(
    session: Session, fields: Sequence[Field], items: Iterable[Json], view: Listing, *, limit: int | None = None
) -> None:
    """Filter, sort, cut and print ``items``."""
    by_name = {field.name: field for field in fields}
    chosen = list(items)
    for name, pattern in view.match:
        text = by_name[name].text
        chosen = [item for item in chosen if _matches(str(text(item)), pattern)]
    if view.sort:
        field = by_name[view.sort.removeprefix("-")]
        chosen.sort(key=field.key or (lambda item: str(field.text(item))), reverse=view.sort.startswith("-"))
    chosen = chosen[:limit]
    if view.json:
        session.out.json([_only(item, view.columns, by_name) for item in chosen] if view.columns else chosen)
        return
    columns = [by_name[name] for name in view.columns] or [field for field in fields if field.shown]
    session.out.table(
        [Column(field.name, field.colour, field.right) for field in columns],
        [[field.text(item) for field in columns] for item in chosen],
    )


def _only(item: Json, columns: Sequence[str], by_name: Mapping[str, Field]) -> Json:
    """The columns of an item: as the service gave them, or as they are shown where they are made of several."""
    return {name: item[name] if name in item else by_name[name].text(item) for name in columns}


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ",".join(f"{key}={_text(member)}" for key, member in value.items()) or "-"
    return str(value)
