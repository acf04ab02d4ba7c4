"""How the dashboard carries a large machine: Chromium, nginx and the service on this machine, drawing by software.

    .venv/bin/python bench/dashboard.py --json

``first_paint_s``: from the address to all cells on the screen, in a browser that has nothing yet. ``update_5000_ms``:
from when the service believes that 5,000 nodes, by chance over the whole machine, have lost their power, to when their
cells are painted; ``update_page_ms`` is the browser's part of it. ``zoom_fps``: drawings a second while the wheel
turns, from the floor to single nodes and back. ``load_bytes`` came over the wire, as the browser counts them.
``update_bytes``: of the stream of changes, which is not compressed, without what only keeps it alive; counted as the
page reads them, since the browser tells of a stream's bytes when it likes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from controlled import GOAL, controlled, describe, in_process
from measure import Figures, arguments, child, main, peak_mb, say, scratch, show, wait_until

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.chromium import chromium
from support.front_door import front_door

CHANGED = 5_000
PATIENCE = 120_000
STREAM = "/v1/machine/follow"
COUNTED_AFTER = 2.0
"""Seconds without more, after which all that came is counted."""

_PAINTED = """() => performance.getEntriesByName("strata:machine").length
    && performance.getEntriesByName("strata:painted").at(-1)?.startTime
        > performance.getEntriesByName("strata:machine").at(-1).startTime"""
_FIRST = """() => {
    const machine = performance.getEntriesByName("strata:machine")[0].startTime;
    return performance.getEntriesByName("strata:painted").find((mark) => mark.startTime > machine).startTime;
}"""
_MARKS = """(name) => performance.getEntriesByName(name).map((mark) => performance.timeOrigin + mark.startTime)"""
_COUNT = """(count) => document.querySelector("[data-testid=legend] [data-value=off]")?.dataset.count == count"""
_COUNTING = """(() => {
    const fetched = window.fetch;
    window.streamed = 0;
    window.fetch = async (what, ...more) => {
        const answer = await fetched(what, ...more);
        if (!answer.body || !String(what.url ?? what).includes(STREAM)) return answer;
        const counting = new TransformStream({
            transform(chunk, onward) {
                if (chunk[0] != 58) window.streamed += chunk.byteLength;  // a colon: a comment, to keep it alive
                onward.enqueue(chunk);
            },
        });
        return new Response(answer.body.pipeThrough(counting), answer);
    };
})()""".replace("STREAM", json.dumps(STREAM))
_STREAMED = """() => window.streamed"""
_ZOOM = """async (seconds) => {
    const canvas = document.querySelector("canvas");
    const [x, y] = [canvas.clientWidth / 2, canvas.clientHeight / 2];
    const at = canvas.getBoundingClientRect();
    if (!canvas.dataset.painted) throw new Error(`the floor is not painted: ${document.body.innerText.slice(0, 300)}`);
    const before = Number(canvas.dataset.painted);
    const begun = performance.now();
    while (performance.now() - begun < seconds * 1000) {
        const inward = (performance.now() - begun) % 2000 < 1000;
        canvas.dispatchEvent(new WheelEvent("wheel", {
            deltaY: inward ? -60 : 60, clientX: at.left + x, clientY: at.top + y, bubbles: true, cancelable: true,
        }));
        await new Promise(requestAnimationFrame);
    }
    return (Number(canvas.dataset.painted) - before) / ((performance.now() - begun) / 1000);
}"""


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=3, help="of each; the middle one counts")
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # directory: be the service
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(Path(given.serve), given.nodes))
        return
    if given.nodes < 2 * CHANGED:
        parser.error(f"--nodes: at least {2 * CHANGED}")
    with scratch() as directory:
        say(f"starting the service with {given.nodes:,} nodes", quiet=given.json)
        with child([sys.executable, __file__, "--nodes", str(given.nodes), "--serve", str(directory)]) as service:
            wait_until("the service", (directory / "ready").exists, service, 300.0)
            show(_measure(given, directory, service), as_json=given.json)


def _measure(given: argparse.Namespace, directory: Path, service: Any) -> Figures:
    url, token = json.loads((directory / "ready").read_text())
    signed_in = f"sessionStorage.setItem('strata-token', {json.dumps(token)})"
    firsts, updates, parts = [], [], []
    with chromium() as browser:
        for number in range(given.times):
            say(f"load {number + 1}", quiet=given.json)
            context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800})
            context.add_init_script(signed_in)
            context.add_init_script(_COUNTING)
            page = context.new_page()
            wire = _Wire(context.new_cdp_session(page))
            page.goto(f"{url}/#/machine?by=power", timeout=PATIENCE)
            page.wait_for_function(_PAINTED, timeout=PATIENCE)
            firsts.append(page.evaluate(_FIRST) / 1000)
            load_bytes = _settled(page, wire.count)
            if number + 1 < given.times:
                context.close()
        say("zoom", quiet=given.json)
        fps = page.evaluate(_ZOOM, 6)
        for number in range(given.times):
            say(f"update {number + 1}", quiet=given.json)
            before = page.evaluate(_STREAMED)
            told = directory / f"told-{number}"
            service.send_signal(signal.SIGUSR1)
            wait_until("the change", told.exists, service)
            page.wait_for_function(_COUNT, arg=str(CHANGED * (number + 1)), timeout=PATIENCE)
            page.wait_for_timeout(500)
            began = float(told.read_text()) * 1000
            heard = next(at for at in page.evaluate(_MARKS, "strata:heard") if at > began)
            painted = next(at for at in page.evaluate(_MARKS, "strata:painted") if at > heard)
            updates.append(painted - began)
            parts.append(painted - heard)
            update_bytes = _settled(page, lambda: page.evaluate(_STREAMED), above=before) - before
    return {
        "nodes": given.nodes,
        "first_paint_s": statistics.median(firsts),
        "update_5000_ms": statistics.median(updates),
        "update_page_ms": statistics.median(parts),
        "zoom_fps": fps,
        "load_bytes": load_bytes,
        "update_bytes": update_bytes,
        "peak_rss_mb": peak_mb(service.pid),
    }


class _Wire:
    """What came over the wire, as the browser counts it. It tells of it some time later."""

    def __init__(self, session: Any) -> None:
        self._bytes = 0
        session.send("Network.enable")
        session.on("Network.dataReceived", self._received)

    def _received(self, event: dict[str, Any]) -> None:
        self._bytes += event["encodedDataLength"]

    def count(self) -> int:
        """Bytes so far."""
        return self._bytes


def _settled(page: Any, count: Callable[[], int], *, above: int = 0) -> int:
    """A count, once it is more than ``above`` and does not grow any more."""
    deadline = time.monotonic() + PATIENCE / 1000
    last, since = count(), time.monotonic()
    while last <= above or time.monotonic() - since < COUNTED_AFTER:
        if time.monotonic() > deadline:
            raise SystemExit(f"{last} bytes were counted, and {above} before, after {PATIENCE / 1000:.0f} s")
        page.wait_for_timeout(100)
        now = count()
        if now != last:
            last, since = now, time.monotonic()
    return last


async def _serve(directory: Path, count: int) -> None:
    """Serve until SIGTERM; at every SIGUSR1 some nodes lose their power."""
    from strata.dashboard.files import published
    from strata.fleet.access.credentials import Authenticator
    from strata.fleet.access.principal import LOCAL_ADMIN
    from strata.fleet.access.records import TokenRequest
    from support.rooms import api_services

    loop, stop, again = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, again.set)
    await describe(directory, count)
    nodes, drivers = in_process(count, 1)
    nodes.put(nodes.all, now=0.0, identity="issued", **GOAL)
    lots = np.random.default_rng(1).permutation(count)
    async with contextlib.AsyncExitStack() as parts:
        service = await parts.enter_async_context(controlled(directory, drivers))
        authenticator = Authenticator(service.controller.store, service.ledger)
        services = api_services(fleet=service, authenticator=authenticator)
        files = published(directory / "dashboard")
        door = await parts.enter_async_context(front_door(services, directory, dashboard=files))
        token = (await authenticator.mint(LOCAL_ADMIN, TokenRequest(role="viewer", ttl=3600))).token
        while service.view.fact_mask("personality", "active").sum() != count:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        (directory / "ready.new").write_text(json.dumps([door.url, token]))
        (directory / "ready.new").rename(directory / "ready")
        for number in range(count // CHANGED):
            waits = [asyncio.create_task(stop.wait()), asyncio.create_task(again.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if stop.is_set():
                return
            again.clear()
            chosen = np.sort(lots[number * CHANGED : (number + 1) * CHANGED])
            nodes.put(chosen, now=time.monotonic(), power="off")
            service.controller.look_at(service.registry.indices_of(chosen + 1))
            while service.view.fact_mask("power", "off").sum() < (number + 1) * CHANGED:
                await service.controller.stepped()
            (directory / f"told-{number}.new").write_text(str(time.time()))
            (directory / f"told-{number}.new").rename(directory / f"told-{number}")


if __name__ == "__main__":
    main(run)
