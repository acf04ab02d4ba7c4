"""Requests about consoles. The scope limits whose one may read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.hardware.consoles.capture import ConsoleCapture
from strata.hardware.consoles.files import Line
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.records import ConsoleHit, ConsoleHits, ConsoleLine, ConsoleView
from strata.hardware.consoles.search import ConsoleSearch

AUDIT_EVERY = 60.0
"""Seconds after which it is noted again that somebody types."""
_BREATH = 5000
"""Nodes of a listing between two pauses: the fleet is not described in one go."""


class ConsoleService:
    """What consoles print, on behalf of somebody."""

    def __init__(self, fleet: Fleet, log: ConsoleLog, search: ConsoleSearch, capture: ConsoleCapture) -> None:
        self._fleet = fleet
        self._log = log
        self._search = search
        self._capture = capture
        self._typed: dict[tuple[str, str], float] = {}
        """Who typed at whose console, and when that was last noted."""

    async def consoles(self, who: Principal, select: str = "*") -> Sequence[ConsoleView]:
        """How the consoles of the selected nodes are captured, and how much of them is kept."""
        found = []
        for count, name in enumerate(self._names(who, select), 1):
            found.append(self._console(name))
            if count % _BREATH == 0:
                await asyncio.sleep(0)
        return found

    async def tail(self, who: Principal, node: str, lines: int = 100) -> Sequence[ConsoleLine]:
        """The last lines of a node's console."""
        self._fleet.index(who, node)
        return _shown(await self._log.tail(node, lines))

    async def search(
        self,
        who: Principal,
        text: str,
        select: str = "*",
        regex: bool = False,
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
    ) -> ConsoleHits:
        """Lines of the selected nodes that match, newest first. A search ends after ten seconds; `whole` says whether
        anything was left out."""
        nodes = self._names(who, select)
        if self._log.loaded:  # most nodes of a fleet may never have printed anything
            nodes = [name for name in nodes if self._log.known(name) is not None]
        hits = await self._search.find(nodes, text, regex=regex, since=since, until=until, limit=limit)
        lines = _shown([line for _, line in hits.lines])
        items = (ConsoleHit(node=node, line=line) for (node, _), line in zip(hits.lines, lines, strict=True))
        return ConsoleHits(items=tuple(items), whole=hits.whole)

    async def follow(self, who: Principal, node: str, since: int | None) -> AsyncIterator[Sequence[ConsoleLine]]:
        """Lines as they come; they end when the caller may not see the node any more."""
        self._fleet.index(who, node)
        return self._followed(who, node, await self._log.follow(node, since))

    async def _followed(
        self, who: Principal, node: str, batches: AsyncIterator[Sequence[Line]]
    ) -> AsyncIterator[Sequence[ConsoleLine]]:
        async with aclosing(batches):  # type: ignore[type-var]
            async for batch in batches:
                if self._fleet.find(who, node) < 0:
                    return
                yield _shown(batch)

    async def type(self, who: Principal, node: str, data: bytes) -> None:
        """Type at it, as far as it is open: nobody says whether the node took notice."""
        self._fleet.index(who, node)
        now = asyncio.get_running_loop().time()
        # Audited once in a while, and without what was typed: it may be a password.
        if now - self._typed.get((who.name, node), -AUDIT_EVERY) >= AUDIT_EVERY:
            await self._fleet.ledger.commit(who.name, "console.type", node, [])
            self._typed = {whom: at for whom, at in self._typed.items() if now - at < AUDIT_EVERY}
            self._typed[who.name, node] = now
        self._capture.type(node, data)

    async def pieces(self, who: Principal, node: str) -> AsyncIterator[Sequence[bytes]]:
        """What it prints from now on, byte for byte, until the caller may not see the node any more."""
        self._fleet.index(who, node)
        return self._tapped(who, node)

    async def _tapped(self, who: Principal, node: str) -> AsyncIterator[Sequence[bytes]]:
        async with aclosing(self._capture.pieces(node)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if self._fleet.find(who, node) < 0:
                    return
                yield (piece,)

    async def dumps(self, who: Principal, node: str) -> Sequence[str]:
        """The excerpts that are kept of a node's kernel troubles."""
        self._fleet.index(who, node)
        return await self._log.dumps(node)

    async def dump(self, who: Principal, node: str, lines: str) -> Sequence[ConsoleLine]:
        """One of them: what the ``dump`` of an event refers to."""
        self._fleet.index(who, node)
        return _shown(await self._log.dump(node, lines))

    def _names(self, who: Principal, select: str) -> Sequence[str]:
        return self._fleet.view.names(self._fleet.seen(who, select))

    def _console(self, name: str) -> ConsoleView:
        status, stream = self._capture.status.get(name), self._log.known(name)
        return ConsoleView(
            node=name,
            way=status.way if status else "none",
            connected=status.connected if status else False,
            trouble=self._log.trouble or (status.trouble if status else ""),
            lines=stream.last - stream.first + 1 if stream else 0,
            bytes=stream.bytes if stream else 0,
            last=stream.time if stream else None,
        )


def _shown(lines: Sequence[Line]) -> tuple[ConsoleLine, ...]:
    return tuple(ConsoleLine.of(line) for line in lines)
