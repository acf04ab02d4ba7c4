"""Keeps every node's console open and writes down what it prints; a console that is lost is sought again, patiently.

Knows where consoles are (a BMC's own, or a socket of a virtual machine), not who decides which to capture.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Literal

import msgspec

from strata.core.driver import Batch
from strata.core.errors import Conflict, DeviceError, NotOffered, StrataError
from strata.fleet.recurring import Recurring
from strata.fleet.tasks import all_cancelled, cancelled
from strata.hardware.bmc.protocol import Bmc
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.text import Lines, clean

log = logging.getLogger(__name__)

Way = Literal["redfish", "ipmi", "socket", "none"]
_WAYS: Mapping[str, Way] = {"http": "redfish", "https": "redfish", "ipmi": "ipmi", "unix": "socket"}


_TYPED = 256
"""Pieces that may wait to be typed."""
_TAPPED = 1024
"""Pieces that may wait for whoever watches."""
_BREATH = 1000
"""Nodes that are looked at before anybody else gets a turn."""


class CaptureSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How consoles are sought. Times in seconds."""

    most: int = 20_000
    """Consoles that one controller keeps open."""
    at_once: int = 64
    """Consoles being opened at one time."""
    opening: float = 10.0
    """A console that is neither open nor refused after this long gives its place to the next (and goes on)."""
    retry: float = 2.0
    """Pause before a console is sought again; doubles each time up to ``retry_most``, with jitter."""
    retry_most: float = 300.0
    not_offered: float = 3600.0
    """Pause where the BMC has no console."""
    steady: float = 60.0
    """A console that was open for this long begins with the short pause again."""
    refresh: float = 30.0
    """How often to look which nodes there are."""
    prompt: float = 1.0
    """What has not ended in a newline (a prompt) is written after this long."""
    before_power: float = 2.0
    """Nodes that are about to be switched on wait for so long until their consoles are open; ``at_once`` at a time."""


class Status(msgspec.Struct, kw_only=True):
    """How one console is captured."""

    way: Way
    connected: bool = False
    trouble: str = ""


class ConsoleCapture:
    """Captures the consoles of ``nodes()`` (name → address of its console), each opened when its ``turn`` has come.
    Start it, and stop it."""

    def __init__(
        self,
        log: ConsoleLog,
        bmc: Callable[[str], Bmc],
        nodes: Callable[[], Mapping[str, str]],
        *,
        settings: CaptureSettings | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._log = log
        self._bmc = bmc
        self._nodes = nodes
        self._wait_turn = turn
        self._line = asyncio.Lock()
        self._settings = settings or CaptureSettings()
        self._opening = asyncio.Semaphore(self._settings.at_once)
        self._running: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._without: dict[str, tuple[str, float]] = {}
        """Nodes whose BMC has no console: at which address, and when to ask again."""
        self._looks = Recurring(
            "console capture",
            self._compare,
            lambda: self._settings.refresh,
            trouble="it was not seen whose consoles are to be captured",
        )
        self.refresh = self._looks.soon
        """Look now which nodes there are."""
        self._begun = False
        self._hurried: dict[str, asyncio.Event] = {}
        """Nodes that are waited for; set when their console is open, or was tried in vain."""
        self._pauses: dict[str, asyncio.Event] = {}
        """Nodes whose console is not tried now; set to have it tried."""
        self.status: dict[str, Status] = {}
        """How the consoles of nodes are captured."""
        self._keys: dict[str, asyncio.Queue[bytes]] = {}
        """Consoles that are open: what is typed at them."""
        self._taps: dict[str, set[asyncio.Queue[bytes]]] = {}
        """Who sees every piece of a console as it comes."""

    async def start(self) -> None:
        """Begin to capture."""
        self._begun = True
        await self._looks.start()

    async def stop(self) -> None:
        """Let go of all consoles."""
        self._begun = False
        await self._looks.stop()
        await all_cancelled([*self._leaving, *(task for _, task in self._running.values())])
        self._running.clear()

    def type(self, node: str, data: bytes) -> None:
        """Type at the node's console. ``Conflict``: it is not open here, or takes nothing any more."""
        keys = self._keys.get(node)
        if keys is None or not self.status[node].connected:
            status = self.status.get(node)
            raise Conflict(
                f"its console is not open{f': {status.trouble}' if status and status.trouble else ' here'}",
                where=node,
                hint="strata console --list shows which are",
            )
        try:
            keys.put_nowait(data)
        except asyncio.QueueFull:
            raise Conflict(
                "its console takes no input at the moment", where=node, hint="wait a little, then type again"
            ) from None

    async def pieces(self, node: str) -> AsyncIterator[bytes]:
        """What the console prints from now on, byte for byte. Who does not keep up misses some."""
        tap: asyncio.Queue[bytes] = asyncio.Queue(_TAPPED)
        self._taps.setdefault(node, set()).add(tap)
        try:
            while True:
                yield await tap.get()
        finally:
            taps = self._taps[node]
            taps.discard(tap)
            if not taps:
                del self._taps[node]

    async def before_power(self, batch: Batch) -> None:
        """These are about to be switched on: have their consoles open by then, so that what they print first is kept.
        Where many are, or a BMC is slow, nobody is kept from the power by this."""
        if not self._begun:
            return
        now = asyncio.get_running_loop().time()
        waited: list[asyncio.Event] = []
        for node, address in zip(batch.names, batch.bmcs, strict=False):
            status = self.status.get(node)
            known = (status is not None and status.connected) or self._is_without(node, address, now)
            if not address or known or len(self._hurried) >= self._settings.at_once:
                continue
            waited.append(self._hurried.setdefault(node, asyncio.Event()))
            if node not in self._running:
                self._begin(node, address)
            elif node in self._pauses:
                self._pauses[node].set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.before_power):
                for event in waited:
                    await event.wait()
        for node in batch.names:
            self._hurried.pop(node, None)

    async def _compare(self) -> None:
        """Let go of what is not wanted any more, and seek what is new; a fleet is not gone through in one go."""
        wanted, now = self._nodes(), asyncio.get_running_loop().time()
        for node, (address, task) in list(self._running.items()):
            if wanted.get(node) != address:
                task.cancel()
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)
                del self._running[node]
                self._tried(node)
        for node in [node for node in self.status if node not in wanted]:
            del self.status[node]
            self._without.pop(node, None)
        for count, (node, address) in enumerate(list(wanted.items()), 1):
            if count % _BREATH == 0:
                await asyncio.sleep(0)
            if address and node not in self._running and not self._is_without(node, address, now):
                self._begin(node, address)

    def _is_without(self, node: str, address: str, now: float) -> bool:
        without = self._without.get(node)
        return without is not None and without[0] == address and now < without[1]

    def _begin(self, node: str, address: str) -> None:
        """Seek a console, if there is room for one more."""
        if len(self._running) >= self._settings.most:
            self.status[node] = Status(way=_way(address), trouble=f"only {self._settings.most} are kept open")
            self._tried(node)
            return
        self.status[node] = status = Status(way=_way(address))
        task = asyncio.create_task(self._seek(node, address, status), name=f"console {node}")
        self._running[node] = (address, task)

    def _tried(self, node: str) -> None:
        """Its console is open, or is not for now: whoever waits for that goes on."""
        if (hurried := self._hurried.get(node)) is not None:
            hurried.set()

    async def _pause(self, node: str, seconds: float) -> None:
        """Until it is time to try again, or somebody needs the console."""
        self._pauses[node] = wanted = asyncio.Event()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await wanted.wait()
        finally:
            if self._pauses.get(node) is wanted:
                del self._pauses[node]

    async def _own_turn(self, node: str) -> None:
        """Until it is this console's turn, or somebody needs it."""
        if self._wait_turn is None or node in self._hurried:
            return
        self._pauses[node] = wanted = asyncio.Event()
        waits = [asyncio.ensure_future(wait) for wait in (self._in_line(), wanted.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await all_cancelled(waits)
            if self._pauses.get(node) is wanted:
                del self._pauses[node]

    async def _in_line(self) -> None:
        """One console at a time waits for a turn: others want some, too."""
        assert self._wait_turn is not None
        async with self._line:
            await self._wait_turn()

    async def _seek(self, node: str, address: str, status: Status) -> None:
        """One console, for ever: open it, write it down, and when it is lost wait and open it again."""
        loop = asyncio.get_running_loop()
        pause, lost = self._settings.retry, False
        while True:
            opened: float | None = None
            try:
                async for _ in self._session(node, address):
                    if opened is None:
                        opened = loop.time()
                        status.connected, status.trouble = True, ""
                        self._tried(node)
                        if lost:
                            self._note(node, "console regained")
                            lost = False
                ended = DeviceError("the BMC ended the console", node=address)
            except NotOffered as wrong:
                # Not worth a task: most of a fleet may be like that.
                status.trouble = str(wrong)
                self._without[node] = (address, loop.time() + self._settings.not_offered * _jitter())
                del self._running[node]
                self._tried(node)
                return
            except StrataError as wrong:
                ended = DeviceError(wrong.detail, node=address)
            except OSError as wrong:
                ended = DeviceError(wrong.strerror or str(wrong), node=address)
            except Exception as wrong:
                # A mistake of ours with one console must not end its capture for good.
                log.exception("a console broke", extra={"node": node})
                ended = DeviceError(f"internal error ({type(wrong).__name__})", node=address)
            status.connected, status.trouble = False, clean(str(ended))
            if opened is not None:
                lost = True
                self._note(node, f"console lost: {ended.detail}")
                if loop.time() - opened >= self._settings.steady:
                    pause = self._settings.retry
            self._tried(node)
            await self._pause(node, pause * _jitter())
            pause = min(pause * 2, self._settings.retry_most)

    async def _session(self, node: str, address: str) -> AsyncIterator[None]:
        """The console while it lasts: yields when it is open, and after each piece."""
        pen = _Pen(self._log, node, self._settings.prompt)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(pen.end)
            await self._own_turn(node)
            async with self._opening:
                keys: asyncio.Queue[bytes] = asyncio.Queue(_TYPED)
                if address.startswith("unix:"):
                    reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
                    stack.callback(writer.close)
                    typing = asyncio.create_task(_type(writer, keys), name=f"keys of {node}")
                    stack.push_async_callback(cancelled, typing)
                    pieces = _pieces(reader)
                else:
                    pieces = self._bmc(address).console(keys)
                self._keys[node] = keys
                stack.callback(self._forget_keys, node, keys)
                stack.push_async_callback(_closed, pieces)
                first = asyncio.ensure_future(anext(pieces))
                stack.push_async_callback(_cancelled, first)
                # A console that is open and quiet gives its place up, too.
                await asyncio.wait([first], timeout=self._settings.opening)
            try:
                pen.write(await first)
                yield None
            except StopAsyncIteration:
                return
            async for piece in pieces:
                pen.write(piece)
                for tap in self._taps.get(node, ()):
                    if not tap.full():
                        tap.put_nowait(piece)
                yield None

    def _forget_keys(self, node: str, keys: asyncio.Queue[bytes]) -> None:
        if self._keys.get(node) is keys:
            del self._keys[node]

    def _note(self, node: str, text: str) -> None:
        self._log.append(node, "strata", [clean(text)])


class _Pen:
    """Writes one console down line by line."""

    def __init__(self, log: ConsoleLog, node: str, patience: float) -> None:
        self._log = log
        self._node = node
        self._patience = patience
        self._lines = Lines()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, piece: bytes) -> None:
        self._put(self._lines.feed(piece))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines.unended:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self.end)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._put(self._lines.rest())

    def _put(self, lines: list[str]) -> None:
        if lines:
            self._log.append(self._node, "serial", lines)


async def _closed(pieces: AsyncIterator[bytes]) -> None:
    await pieces.aclose()  # type: ignore[attr-defined]


async def _cancelled(future: asyncio.Future[bytes]) -> None:
    future.cancel()
    await asyncio.wait([future])


async def _type(writer: asyncio.StreamWriter, keys: asyncio.Queue[bytes]) -> None:
    while True:
        writer.write(await keys.get())
        await writer.drain()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    yield b""
    while piece := await reader.read(16 * 1024):
        yield piece


def _way(address: str) -> Way:
    return _WAYS.get(address.partition(":")[0], "none")


def _jitter() -> float:
    return 0.5 + random.random()
