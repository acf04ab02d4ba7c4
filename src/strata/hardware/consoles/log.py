"""What consoles printed: one append-only log of lines for each node, kept within limits, read, followed, searched.

``append`` never blocks: lines are written a moment later by a thread of their own, and are there for readers and
listeners from then on. A console that floods is cut back, a disk that hangs costs lines and never the service.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from strata.core.errors import BadRequest, Compacted, NotFound
from strata.hardware.consoles.files import Line, Source, directory_of, lines, parse, segments, written
from strata.hardware.consoles.writer import ConsoleLimits, ConsoleWriter, Stream

log = logging.getLogger(__name__)

Listener = Callable[[str, Sequence[Line]], None]
"""Told of a node's new lines, on the event loop. Must not block."""

_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_REFERENCE = re.compile(r"[0-9]{1,15}-[0-9]{1,15}")
_READ = 1000
_TRIM_EVERY = 60.0
_FORGET = 1000
_AT_A_TIME = 500


class _Inlet:
    """What a node printed and was not written yet, and how much it may still print."""

    __slots__ = ("dropped", "filled", "lines", "tokens")

    def __init__(self, tokens: float, now: float) -> None:
        self.lines: list[tuple[float, Source, str]] = []
        self.tokens = tokens
        self.filled = now
        self.dropped = 0


class ConsoleLog:
    """The logs under ``root``. Start it, and stop it: that writes what is still to be written."""

    def __init__(
        self, root: Path, *, limits: ConsoleLimits | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.limits = limits or ConsoleLimits()
        self.dropped = 0
        """Lines dropped since the start, for whatever reason."""
        self.trouble = ""
        """Why lines cannot be written; empty: they can."""
        self.loaded = False
        """Whether it has been looked at what is on disk: ``known`` knows all."""
        self._root = root
        self._clock = clock
        self._writer = ConsoleWriter(root, self.limits)
        self._inlets: OrderedDict[str, _Inlet] = OrderedDict()
        """Those that printed lately, the last one last."""
        self._due: set[str] = set()
        self._pending = 0
        self.listeners: list[Listener] = []
        self._followers: dict[str, set[asyncio.Event]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-log")
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="console log")

    async def stop(self) -> None:
        """Write the rest, and end."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    # -- writing

    def append(self, node: str, source: Source, texts: Iterable[str], at: float | None = None) -> None:
        """Add lines (clean ones: ``console_text``) to a node's log. Beyond the limits they are counted and dropped."""
        if not _NODE.fullmatch(node):
            raise BadRequest(f"not the name of a node: {node[:80]!r}", where="node")
        now = self._clock()
        inlet = self._inlets.get(node)
        if inlet is None:
            inlet = self._inlets[node] = _Inlet(self.limits.burst, now)
        self._inlets.move_to_end(node)
        self._due.add(node)
        self._refill(inlet, now)
        for text in texts:
            if inlet.tokens < 1 or self._pending >= self.limits.pending:
                inlet.dropped += 1
                self.dropped += 1
                continue
            inlet.tokens -= 1
            if inlet.dropped:
                inlet.lines.append((now, "strata", self._dropped(inlet)))
                self._pending += 1
            inlet.lines.append((now if at is None else at, source, text))
            self._pending += 1
        self._wake.set()

    def _refill(self, inlet: _Inlet, now: float) -> None:
        grown = inlet.tokens + max(now - inlet.filled, 0) * self.limits.lines_per_second
        inlet.tokens, inlet.filled = min(grown, self.limits.burst), now

    def _dropped(self, inlet: _Inlet) -> str:
        count, inlet.dropped = inlet.dropped, 0
        return f"{count} lines dropped: they came faster than {self.limits.lines_per_second:.0f} a second"

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        await self._attempt(self._writer.load)
        self.loaded = True
        trimmed = loop.time()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._flush()
            if loop.time() - trimmed > _TRIM_EVERY:
                trimmed = loop.time()
                await self._attempt(self._writer.trim)
            if self._stopping:
                await self._flush()
                return
            # Many small writes become one; a stop does not wait for it.
            await asyncio.sleep(0 if self._stopping else self.limits.every)

    async def _attempt(self, work: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as wrong:
            self.trouble = f"cannot read console logs: {wrong.strerror or wrong}"
            log.warning("console logs cannot be read", extra={"error": self.trouble})

    async def _flush(self) -> None:
        """Write what is due, some nodes at a time: the loop has other work, even when a whole fleet boots."""
        due, self._due = list(self._due), set()
        for start in range(0, len(due), _AT_A_TIME):
            batch = self._take(due[start : start + _AT_A_TIME])
            if not batch:
                continue
            done = await asyncio.get_running_loop().run_in_executor(self._thread, self._write, batch)
            for node, numbered in done:
                for event in self._followers.get(node, ()):
                    event.set()
                self._tell(node, numbered)
        self._forget(self._clock())

    def _tell(self, node: str, numbered: Sequence[Line]) -> None:
        for listener in self.listeners:
            try:
                listener(node, numbered)
            except Exception:  # a mistake of one listener must not end the log
                log.exception("a listener to console logs failed", extra={"node": node})

    def _take(self, nodes: Sequence[str]) -> dict[str, list[tuple[float, Source, str]]]:
        now, batch = self._clock(), dict[str, list[tuple[float, Source, str]]]()
        for node in nodes:
            inlet = self._inlets[node]
            self._refill(inlet, now)
            if inlet.dropped and inlet.tokens >= 1:
                inlet.lines.append((now, "strata", self._dropped(inlet)))
                self._pending += 1
            if inlet.dropped:
                self._due.add(node)  # it is told how many when it may print again
                self._wake.set()
            if inlet.lines:
                batch[node], inlet.lines = inlet.lines, []
                self._pending -= len(batch[node])
        return batch

    def _forget(self, now: float) -> None:
        """Nothing is known of those that have been quiet for long that matters."""
        quiet = now - self.limits.burst / self.limits.lines_per_second
        for _ in range(_FORGET):
            node = next(iter(self._inlets), "")
            if not node or node in self._due or self._inlets[node].filled > quiet:
                return
            del self._inlets[node]

    def _write(self, batch: dict[str, list[tuple[float, Source, str]]]) -> list[tuple[str, Sequence[Line]]]:
        done: list[tuple[str, Sequence[Line]]] = []
        trouble = ""
        for node, new in batch.items():
            try:
                done.append((node, self._writer.write(node, new)))
            except OSError as wrong:
                self.dropped += len(new)
                trouble = f"cannot write console logs: {wrong.strerror or wrong}"
        if trouble and not self.trouble:
            log.warning("console logs cannot be written", extra={"error": trouble})
        self.trouble = trouble
        return done

    # -- reading

    async def about(self, node: str) -> Stream:
        """How much there is of a node."""
        known = self._writer.streams.get(node)
        if known is None:
            loop = asyncio.get_running_loop()
            known = await loop.run_in_executor(self._thread, self._writer.stream, node)
        return known

    def known(self, node: str) -> Stream | None:
        """The same, if there is anything: of any number of nodes at once, for it does not look at the disk."""
        return self._writer.streams.get(node)

    async def tail(self, node: str, count: int) -> Sequence[Line]:
        """The last lines."""
        return await asyncio.to_thread(self._tail, node, count)

    def _tail(self, node: str, count: int) -> list[Line]:
        found: list[Line] = []
        for segment in reversed(segments(directory_of(self._root, node))):
            if len(found) >= count:
                break
            found = list(lines(segment)) + found
        return found[-count:] if count else []

    async def read(self, node: str, first: int, last: int) -> Sequence[Line]:
        """The lines with the numbers from ``first`` to ``last``, as far as they are kept."""
        return await asyncio.to_thread(self._read, node, first, last)

    def _read(self, node: str, first: int, last: int) -> list[Line]:
        kept = segments(directory_of(self._root, node))
        found: list[Line] = []
        for place, segment in enumerate(kept):
            following = kept[place + 1].first if place + 1 < len(kept) else last + 1
            if following > first and segment.first <= last:
                found += [line for line in lines(segment) if first <= line.id <= last]
        return found

    async def follow(self, node: str, since: int | None) -> AsyncIterator[Sequence[Line]]:
        """New lines as they come, after the line ``since`` (None: from now on), without gap or repeat.

        ``Compacted`` when some of them are not kept any more.
        """
        stream = await self.about(node)
        if since is not None and since > stream.last:
            raise BadRequest(f"the newest line is {stream.last}; nothing can be continued after {since}", where="since")
        return self._lines(node, stream, stream.last if since is None else since)

    async def _lines(self, node: str, stream: Stream, last: int) -> AsyncIterator[Sequence[Line]]:
        event = asyncio.Event()
        followers = self._followers.setdefault(node, set())
        followers.add(event)
        try:
            while True:
                event.clear()
                upto = min(stream.last, last + _READ)  # it grows while we read: what is promised is what is read
                new = await self.read(node, last + 1, upto) if upto > last else ()
                if last + 1 < stream.first:
                    raise Compacted(
                        "older lines are not kept any more", oldest=stream.first, where=node, hint="read the tail"
                    )
                if new:
                    yield new
                if upto == last:
                    await event.wait()
                last = upto
        finally:
            followers.discard(event)
            if not followers:
                self._followers.pop(node, None)

    # -- excerpts that outlive rotation

    async def keep(self, node: str, first: int, last: int) -> str:
        """Keep these lines apart; the reference to them: ``console:NODE:FIRST-LAST``."""
        await asyncio.to_thread(self._keep, node, first, last)
        return reference(node, first, last)

    def _keep(self, node: str, first: int, last: int) -> None:
        directory = self._dumps(node)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = b"".join(map(written, self._read(node, first, last)))
        part = directory / f"{first}-{last}.part"
        part.write_bytes(data)
        part.chmod(0o600)
        part.replace(directory / f"{first}-{last}")
        for old in self._kept(node)[: -self.limits.dumps]:
            (directory / old).unlink(missing_ok=True)

    async def dumps(self, node: str) -> Sequence[str]:
        """The excerpts that are kept of a node, oldest first, as ``FIRST-LAST``."""
        return await asyncio.to_thread(self._kept, node)

    async def dump(self, node: str, lines_: str) -> Sequence[Line]:
        """The lines of one; ``NotFound`` if it is not kept."""
        if not _REFERENCE.fullmatch(lines_):
            raise BadRequest("a dump is named FIRST-LAST, by the numbers of its lines", where="dump")
        try:
            text = await asyncio.to_thread((self._dumps(node) / lines_).read_text, "utf-8", "replace")
        except FileNotFoundError:
            raise NotFound(
                f"no dump {lines_} is kept", where=node, hint="the oldest dumps are removed to make room"
            ) from None
        return [line for line in map(parse, text.split("\n")) if line is not None]

    def _dumps(self, node: str) -> Path:
        if not _NODE.fullmatch(node):
            raise BadRequest(f"not the name of a node: {node[:80]!r}", where="node")
        return self._root / "dumps" / node

    def _kept(self, node: str) -> list[str]:
        try:
            names = [entry.name for entry in self._dumps(node).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(
            (name for name in names if _REFERENCE.fullmatch(name)), key=lambda name: int(name.partition("-")[0])
        )


def reference(node: str, first: int, last: int) -> str:
    """How an excerpt is named elsewhere."""
    return f"console:{node}:{first}-{last}"
