"""What tests of consoles share."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from strata.hardware.consoles.log import ConsoleLog


async def read(log: ConsoleLog, node: str, count: int) -> list[tuple[str, str]]:
    """The first ``count`` lines, when they are there."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(60), aclosing(await log.follow(node, 0)) as batches:  # type: ignore[type-var]
        while len(found) < count:
            found += [(line.source, line.text) for line in await anext(batches)]
    return found
