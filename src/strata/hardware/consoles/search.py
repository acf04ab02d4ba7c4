"""Finds lines in many console logs at once, within a time limit, whatever is looked for."""

from __future__ import annotations

import asyncio
import heapq
import json
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from strata.core.errors import BadRequest, Unavailable
from strata.hardware.consoles.files import Line

BUDGET = 10.0
"""Seconds that one search may take."""
_AT_ONCE = 2
_WAITING = 16
_LONGEST_LINE = 64 * 1024


class Hits(NamedTuple):
    """The newest lines that matched, newest first, with their node. ``whole``: nothing was left out."""

    lines: tuple[tuple[str, Line], ...]
    whole: bool


class ConsoleSearch:
    """Searches the logs under ``root``, a few at a time, each in a process that is killed when its time is up."""

    def __init__(self, root: Path, *, budget: float = BUDGET) -> None:
        self._root = root
        self._budget = budget
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def find(
        self,
        nodes: Iterable[str],
        text: str,
        *,
        regex: bool = False,
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
    ) -> Hits:
        """Lines of ``nodes`` that hold ``text``, upper or lower case; or that match it, as a Python regex."""
        question = {
            "root": str(self._root), "text": text, "regex": regex, "since": since, "until": until, "limit": limit,
        }  # fmt: skip
        if self._waiting >= _WAITING:
            raise Unavailable("too many searches are waiting already", hint="try again in a moment")
        self._waiting += 1
        try:
            async with self._room:
                return await self._ask(question, nodes, limit)
        finally:
            self._waiting -= 1

    async def _ask(self, question: dict[str, Any], nodes: Iterable[str], limit: int) -> Hits:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "strata.hardware.consoles.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            limit=_LONGEST_LINE,
        )  # fmt: skip
        newest: list[tuple[float, str, int, Line]] = []
        finished = left_out = False
        sending = asyncio.create_task(_send(worker, question, nodes))
        try:
            async with asyncio.timeout(self._budget):
                async for answer in _answers(worker):
                    if isinstance(answer, dict):
                        if "wrong" in answer:
                            raise BadRequest(f"not a pattern: {answer['wrong']}", where="text")
                        finished, left_out = True, left_out or not answer["whole"]
                        continue
                    node, number, time, source, text = answer
                    item = (time, node, number, Line(number, time, source, text))
                    if len(newest) < limit:
                        heapq.heappush(newest, item)
                    else:
                        heapq.heappushpop(newest, item)
                        left_out = True
        except TimeoutError:
            finished = False
        finally:
            sending.cancel()
            if worker.returncode is None:
                worker.kill()
            await asyncio.wait([sending])
            await worker.communicate()
        return Hits(tuple((node, line) for _, node, _, line in sorted(newest, reverse=True)), finished and not left_out)


async def _send(worker: asyncio.subprocess.Process, question: dict[str, Any], nodes: Iterable[str]) -> None:
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(question).encode() + b"\n")
        worker.stdin.write("".join(f"{node}\n" for node in nodes).encode())
        await worker.stdin.drain()
        worker.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # it gave up: what it said is in its answer


async def _answers(worker: asyncio.subprocess.Process) -> AsyncIterator[Any]:
    assert worker.stdout is not None
    async for raw in worker.stdout:
        yield json.loads(raw)
