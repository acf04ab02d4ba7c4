"""How far each node has come from power-off to a running image, and when: shown line by line, or as a live table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from strata.cli.output import fold
from strata.cli.times import span
from strata.core.printable import clean

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from strata.cli.client import Client
    from strata.cli.output import Output

STAGES = ("off", "power", "script", "kernel", "minOS", "image", "ready")
"""What a node goes through, in order."""

_WORDS = (
    "is off",
    "has power",
    "asks what to boot",
    "starts its kernel",
    "runs minOS",
    "has its image",
    "is ready",
)
_KERNEL, _READY = STAGES.index("kernel"), STAGES.index("ready")
_POLL = 0.5


def stage(facts: Mapping[str, Any], state: str, boot: Mapping[str, Any], before: int = 0) -> int:
    """The last stage that a node has reached, as a place in ``STAGES``. ``boot``: how its boots went; ``before``: where
    the node was seen last."""
    value = {name: fact["value"] for name, fact in facts.items()}
    if value.get("power") != "on":
        return 0
    if value.get("os") != "up":
        if boot.get("fragment") and not boot.get("redeemed"):
            return _KERNEL
        if (boot.get("script") or 0) > (boot.get("redeemed") or 0):
            return 2
        return _KERNEL if before == _KERNEL else 1  # the agent has its identity, and has said nothing else yet
    if value.get("image") in ("absent", "unknown", None):
        return 4
    return _READY if state == "ready" and value.get("personality") == "active" else 5


def rests(desires: Mapping[str, Any], state: str) -> bool:
    """Whether a node is off and is meant to be, as those are that their workload manager has switched off to save
    power: nobody waits for them."""
    return state == "off" and "power" in desires and "off" in desires["power"]["values"]


def passed(changes: Iterable[Mapping[str, Any]], boot: Mapping[str, Any]) -> dict[int, float]:
    """When a node came by the stages before the last, as its history (newest first) and its boots tell."""
    found = {2: boot.get("script"), 3: boot.get("fragment")}
    for change in changes:
        new = change["new"]
        place = {("power", "on"): 1, ("os", "up"): 4}.get((change["variable"], new))
        if change["variable"] == "image" and new not in ("absent", "unknown"):
            place = 5
        if place is not None:
            found.setdefault(place, change["time"])
    return {place: float(at) for place, at in sorted(found.items()) if at is not None}


class Journey:
    """Follows some nodes; use it as a context. Times are Unix seconds."""

    def __init__(self, out: Output, names: Sequence[str], began: float) -> None:
        self._out = out
        self._began = began
        self._reached: dict[str, dict[int, float]] = {name: {} for name in names}
        self._now: dict[str, tuple[int, str]] = {}
        self._news: list[tuple[float, str, int]] = []
        self._live: Live | None = None

    def __enter__(self) -> Journey:
        if self._out.stderr.isatty():
            from rich.live import Live

            self._live = Live(self._table(), console=self._out.console(error=True), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._table())
            self._live.stop()

    def seen_at(self, name: str) -> int:
        """Where the node was seen last."""
        return self._now.get(name, (0, ""))[0]

    def skipped(self, name: str, reached: int) -> bool:
        """Whether a node that is there now went by stages that were not seen."""
        return reached > self.seen_at(name) + 1

    def update(self, name: str, reached: int, doing: str, passed: Mapping[int, float]) -> None:
        """The node is there now. ``passed``: when it came by stages that were not seen."""
        before = self._now.get(name, (-1, ""))[0]
        self._now[name] = (reached, clean(doing))
        times = self._reached[name]
        if reached < before:  # it fell back: what it reaches again, it reaches later
            for place in [place for place in times if place >= reached]:
                del times[place]
            before = reached - 1
        for place, at in sorted({reached: time.time(), **passed}.items()):
            if before < place <= reached and at - self._began >= max(times.values(), default=0.0):
                times[place] = at - self._began
                self._news.append((times[place], name, place))

    def show(self) -> None:
        """Show what ``update`` was told since the last time, in the order in which it happened."""
        news, self._news = sorted(self._news), []
        if self._live is not None:
            self._live.update(self._table())
            return
        for after, name, place in news:
            self._out.note(f"{span(after):>6}  {name}  {_WORDS[place]:<17}  {self._took(name, place)}".rstrip())
        self._out.stderr.flush()

    def _took(self, name: str, place: int) -> str:
        """How long the way to this stage was, from the last one that was seen. Of times as they are shown."""
        times = self._reached[name]
        before = [at for earlier, at in times.items() if earlier < place]
        return f"+{span(round(times[place]) - round(max(before)))}" if before else ""

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("node", *STAGES[1:], "now"):
            table.add_column(title.upper())
        for name, times in self._reached.items():
            at, doing = self._now.get(name, (0, ""))
            cells = [(self._took(name, place) or "✓") if place in times else "·" for place in range(1, len(STAGES))]
            if at == _READY:
                now = Text(f"ready after {span(times[at])}" if len(times) > 1 else "ready", style="green")
            else:
                now = Text(f"{_WORDS[at]}{f': {doing}' if doing else ''}", overflow="ellipsis", no_wrap=True)
            table.add_row(name, *cells, now)
        return table


def follow(client: Client, out: Output, names: Sequence[str], *, began: float, timeout: float) -> bool:
    """Show the nodes' way since ``began`` (Unix seconds) until all are ready, or off as they are meant to be (True), or
    ``timeout`` seconds are over."""
    deadline = time.monotonic() + timeout
    with Journey(out, names, began) as journey:
        while True:
            fields = "name,state,facts,desires,doing,fault"
            page = client.get("/v1/nodes", {"select": ",".join(names), "fields": fields, "limit": 1000})
            boots = {one["node"]: one for one in client.get("/v1/boot/nodes", {"limit": 1000})["items"]}
            there = 0
            resting: list[str] = []
            for node in page["items"]:
                name, missed = str(node["name"]), {}
                reached = stage(node["facts"], node["state"], boots.get(name, {}), journey.seen_at(name))
                there += reached == _READY
                if rests(node["desires"], node["state"]):
                    resting.append(name)
                doing = node["fault"] or (node["doing"]["mutation"] if node["doing"] else "")
                if journey.skipped(name, reached):
                    told = client.get(f"/v1/nodes/{name}/history", {"since": str(began), "limit": 100})["items"]
                    missed = passed(told, boots.get(name, {}))
                journey.update(name, reached, doing, missed)
            journey.show()
            if there + len(resting) == len(names):
                if resting:
                    out.note(f"{fold(resting)}: off, as wanted (by the workload manager to save power, or by a person)")
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL)
