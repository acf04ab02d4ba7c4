"""Reservations: nodes that a scheduler keeps free for some accounts, for a time. One adapter; its texts are pure.

What jobs name is the scheduler's own id of a reservation. They are made in the name of the service, which has to be an
operator of the scheduler; who may have one made is for whoever asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest, DeviceError, NotFound
from strata.core.texts import In
from strata.schedulers.by_commands import Judgement, unchanged
from strata.schedulers.dates import ZONE
from strata.schedulers.gridengine.submission import Environment
from strata.schedulers.jobs import Count
from strata.schedulers.runner import Runner

NameText = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$(?!\n)", max_length=32)]
AccountText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}$(?!\n)", max_length=63)]
State = Literal["waiting", "active", "unknown"]


class ReservationSpec(In, frozen=True, kw_only=True):
    """What is to be kept free, for whom, and when."""

    name: NameText
    accounts: Annotated[tuple[AccountText, ...], Meta(min_length=1, max_length=100)]
    """Local accounts that may use it."""
    start: Annotated[float, Meta(ge=0, le=4e9)] | None = None
    """None: now."""
    seconds: Annotated[int, Meta(ge=60, le=366 * 86_400)]
    nodes: Count = 1
    cores: Count = 1
    """On each node, where the scheduler counts them."""
    queue: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,127}$(?!\n)", max_length=128)] | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """One, as its scheduler tells of it."""

    id: str
    """What jobs name."""
    name: str
    state: State
    start: float | None
    end: float | None
    accounts: tuple[str, ...]
    """Who may use it."""
    nodes: tuple[str, ...]


class Texts(Judgement, Protocol):
    """What a kind of scheduler is asked, and what it answers. All of it is pure."""

    def reserve(self, spec: ReservationSpec, environments: Sequence[Environment]) -> tuple[str, ...]:
        """The command that makes one."""
        ...

    def reserved(self, said: str, /) -> str:
        """Its id, from the answer to that; empty: its name."""
        ...

    def listing(self, said: str | None) -> tuple[str, ...]:
        """Asks for all; with an answer to that, for more of them. Empty: that was all."""
        ...

    def reservations(self, said: str, now: float) -> list[Reservation]:
        """From the last answer."""
        ...

    def remove(self, ident: str) -> tuple[str, ...]:
        """The command that ends one."""
        ...

    def is_gone(self, said: str, /) -> bool:
        """Whether a command says that there is none."""
        ...


class Reservations:
    """Of one cluster. ``environments``: asks for the parallel environments by which its slots are spread; None: there
    are none."""

    def __init__(
        self,
        runner: Runner,
        texts: Texts,
        environments: Callable[[Runner], Awaitable[Sequence[Environment]]] | None = None,
    ) -> None:
        self._runner = runner
        self._texts = texts
        self._environments = environments

    async def reserve(self, spec: ReservationSpec) -> str:
        """Make one; its id. ``BadRequest`` with the scheduler's words where it does not."""
        environments: Sequence[Environment] = ()
        if self._environments is not None and spec.nodes * spec.cores > 1:
            environments = await self._environments(self._runner)
        command = self._texts.reserve(spec, environments)
        try:
            said = await self._runner.run(*command, env=ZONE)
        except DeviceError as error:
            raise unchanged(self._texts, error) from None
        return self._texts.reserved(said) or spec.name

    async def all(self, now: float) -> Sequence[Reservation]:
        """All of them that have not ended."""
        said = await self._ask(self._texts.listing(None))
        if more := self._texts.listing(said):
            said = await self._ask(more)
        return self._texts.reservations(said, now)

    async def remove(self, ident: str) -> None:
        """End one. ``NotFound``: there is none."""
        try:
            await self._runner.run(*self._texts.remove(ident), env=ZONE)
        except DeviceError as error:
            if self._texts.is_gone(error.reply):
                raise NotFound(f"no such reservation: {ident}", where="reservation") from None
            raise unchanged(self._texts, error) from None

    async def _ask(self, command: Sequence[str]) -> str:
        try:
            return await self._runner.run(*command, env=ZONE)
        except DeviceError as error:
            # Some say by an error that there is none.
            if self._texts.is_gone(error.reply):
                return ""
            raise


def whole_minutes(spec: ReservationSpec) -> int:
    """For how many minutes, where a scheduler counts those."""
    return -(-spec.seconds // 60)


def identifier(text: str) -> str:
    """An id, and no option or text of more."""
    if not text or text.startswith("-") or not all(letter.isalnum() or letter in "_.#-" for letter in text):
        raise BadRequest(f"not an id of a reservation: {text[:40]!r}", where="reservation")
    return text
