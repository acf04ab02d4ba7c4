"""The commands that everything with a name has: list, show, put, delete, and steps that are one request each.

A room declares a ``Named`` for its noun, and says of each command what its help says; it writes only those that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from strata.cli import listing as ls
from strata.cli.reading import read_text
from strata.cli.session import Session
from strata.cli.words import completer, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

_FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


class Named:
    """One noun: ``word`` is what people call it, ``url`` where the API has them all, ``group`` what its commands are
    below. ``report`` shows one to a person; without it, its fields are."""

    def __init__(
        self,
        group: click.Group,
        word: str,
        url: str,
        fields: Sequence[ls.Field],
        *,
        report: Callable[[Session, Json], None] | None = None,
    ) -> None:
        self._group = group
        self._word = word
        self._url = url
        self._fields = fields
        self._report = report

    def path(self, name: str) -> str:
        """Where the API has the one of that name."""
        return f"{self._url}/{segment(name)}"

    def report(self, session: Session, found: Json, as_json: bool) -> None:
        """Show one."""
        if as_json:
            session.out.json(found)
        elif self._report is not None:
            self._report(session, found)
        else:
            session.out.fields((field.name, field.text(found)) for field in self._fields)

    def list(self, does: str, example: str, *, sort: str = "name") -> None:
        """``list``: all of them; without ``sort`` in the order in which the service gives them."""

        @ls.listing(self._fields, sort=sort)
        def list_(session: Session, view: ls.Listing) -> None:
            ls.show(session, self._fields, session.client.get(self._url)["items"], view)

        self._add("list", list_, does, example)

    def show(self, does: str, example: str) -> None:
        """``show``: one of them."""

        def show(session: Session, name: str, as_json: bool) -> None:
            self.report(session, session.client.get(self.path(name)), as_json)

        self._add_for_one("show", show, does, example)

    def delete(self, does: str, example: str, *, command: str = "delete") -> None:
        """``delete``, or what else people call it that one of them goes."""
        done = f"{command.removesuffix('e')}ed"

        def delete(session: Session, name: str, as_json: bool) -> None:
            session.client.delete(self.path(name))
            session.out.answer(as_json, {done: name}, f"{done} {self._word} {name}")

        self._add_for_one(command, delete, does, example)

    def put_files(
        self, read: Callable[[str, str], Mapping[str, Any]], said: Callable[[Json], str], does: str, example: str
    ) -> None:
        """``put``: those that files hold. ``read`` makes specs, by name, of a text and what it is called; ``said`` is
        what a person is told of one that was put."""

        @click.argument("files", type=_FILE, nargs=-1, required=True)
        @ls.json_option
        def put(session: Session, files: tuple[Path, ...], as_json: bool) -> None:
            import msgspec

            specs = [one for file in files for one in read(read_text(file), str(file)).items()]
            done: list[Json] = []
            for name, spec in specs:
                body = msgspec.to_builtins(spec)
                done.append(session.client.put(self.path(name), body))
                if not as_json:
                    session.out.line(f"put {self._word} {name}: {said(done[-1])}")
            if as_json:
                session.out.json(done)

        self._add("put", put, does, example)

    def step(self, way: Literal["enable", "disable"], does: str, example: str) -> None:
        """A command that is a POST below one of them, and shows what became of it."""

        def step(session: Session, name: str, as_json: bool) -> None:
            self.report(session, session.client.post(f"{self.path(name)}/{way}"), as_json)

        self._add_for_one(way, step, does, example)

    def _add_for_one(self, command: str, function: Callable[..., None], does: str, example: str) -> None:
        argument = click.argument("name", shell_complete=completer(self._url))
        self._add(command, argument(ls.json_option(function)), does, example)

    def _add(self, command: str, function: Callable[..., Any], does: str, example: str) -> None:
        self._group.command(command, help=f"{does}\n\n\b\nExample: {example}")(function)
