"""Power policies in YAML: what a site allows, and how caps, idle nodes and queues are managed under it.

    name: over-provisioned
    limit: 2MW                  # the site's; never exceeded at any instant
    ramp: {up: 200kW, down: 1MW}               # per minute
    band: 1.2MW                 # lower edge of the power band: caps are not lowered further
    nodes: {idle: 50W, boot: 150W, low: 200W, high: 400W}
    every: 60s                  # how often it is looked at
    cap: 250W                   # of every node; left out: none, or as the parts below say
    idle-pool: {low: 200, high: 400, on: 100, off: 100, after: 10m}
    inrush: {node: 150W, cabinet: 10kW, pdu: 4kW}
    over-provisioned: {mood: aggressive}       # or gentle, or by-demand
    queues:                     # not together with over-provisioned
      200W: {cap: 200W, nodes: 1000, prefer: {days: mon-fri, from: "8:00", to: "17:00", zone: Europe/Berlin}}
      unlimited: {}

Every part may be left out. ``idle-pool`` and ``over-provisioned`` are rules, of which a site may have more:
``rules.py`` lists them.
"""

from __future__ import annotations

import datetime as dt
import difflib
import importlib
import re
import zoneinfo
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, get_args

import msgspec
import numpy as np
from msgspec import structs

from strata.core.errors import BadRequest
from strata.core.input.yamltree import tree
from strata.core.units import Seconds, Watts, seconds, watts
from strata.power.capping.terms import Limits, Ratings
from strata.power.policies.view import Actions, View

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A place in the document."""


class Rule(Part, frozen=True):
    """A part of the document that decides what nodes do. Each has a module of its own, which ``rules.py`` lists."""

    says_caps: ClassVar[bool] = False
    """Whether it says what caps are; of those a policy has one."""

    def step(self, policy: Policy, now: float, view: View, actions: Actions) -> Actions:
        """What is asked for, with what this part asks for. Pure: all that it may know is in ``view``."""
        raise NotImplementedError


class NodePower(Part, frozen=True):
    """What one node draws."""

    idle: Watts = Watts(50)
    boot: Watts = Watts(150)
    """The most while it starts."""
    low: Watts = Watts(200)
    """The lowest cap that it takes."""
    high: Watts = Watts(400)
    """The most that it draws without a cap."""

    def __post_init__(self) -> None:
        if not 0 <= self.idle <= self.low <= self.high or self.high <= 0 or not 0 <= self.boot <= self.high:
            raise ValueError("idle, low and high must ascend in this order, and boot must not be above high")

    def ratings(self, count: int) -> Ratings:
        """The same for ``count`` nodes."""
        return Ratings.alike(count, idle=self.idle, boot=self.boot, low=self.low, high=self.high)


class Ramp(Part, frozen=True):
    """By how much what may be drawn changes within a minute."""

    up: Watts = Watts(np.inf)
    down: Watts = Watts(np.inf)


class Hours(Part, frozen=True):
    """Hours of some days of the week."""

    days: str = "mon-sun"
    start: str = msgspec.field(default="0:00", name="from")
    end: str = msgspec.field(default="24:00", name="to")
    zone: str = "UTC"

    def __post_init__(self) -> None:
        self.weekdays()
        if not _minutes(self.start) < _minutes(self.end):
            raise ValueError("from must be before to, on the same day")
        try:
            zoneinfo.ZoneInfo(self.zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"no such time zone: {self.zone[:60]!r}; say for example Europe/Berlin") from None

    def weekdays(self) -> frozenset[int]:
        """Monday is 0."""
        found: set[int] = set()
        for part in self.days.split(","):
            first, dash, last = part.strip().partition("-")
            if first not in DAYS or (dash and last not in DAYS):
                raise ValueError(f"{part[:60]!r} is not a day or days such as mon, mon-fri")
            begin, end = DAYS.index(first), DAYS.index(last or first)
            found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
        return frozenset(found)

    def now(self, moment: float) -> bool:
        """Whether ``moment`` is in them."""
        local = dt.datetime.fromtimestamp(moment, zoneinfo.ZoneInfo(self.zone))
        minute = local.hour * 60 + local.minute
        return local.weekday() in self.weekdays() and _minutes(self.start) <= minute < _minutes(self.end)


class Queue(Part, frozen=True):
    """Nodes under one cap, as many as there is work for."""

    cap: Watts | None = None
    """None: as much as a node draws."""
    nodes: int = 0
    """How many it has to begin with. What no queue has goes to the first."""
    least: int = 0
    """So many it keeps, whatever others need."""
    prefer: Hours | None = None
    """When its jobs go before those of the others."""

    def __post_init__(self) -> None:
        if self.nodes < 0 or self.least < 0:
            raise ValueError("nodes and least must not be below 0")


class Inrush(Part, frozen=True):
    """How much may be starting at once behind one part of the power supply."""

    node: Watts
    """What one node takes while it starts."""
    cabinet: Watts | None = None
    pdu: Watts | None = None
    lasts: Seconds = Seconds(300)
    """A node is starting until its system runs, but no longer than this."""

    def __post_init__(self) -> None:
        for limit in (self.cabinet, self.pdu):
            if self.node <= 0 or (limit is not None and limit < self.node):
                raise ValueError("node must be above 0 W, and no limit below it, or nothing would ever start")


class Document(Part, frozen=True):
    """What every policy may say, beside its rules."""

    name: str = ""
    doc: str = ""
    limit: Watts | None = None
    ramp: Ramp = Ramp()
    band: Watts = Watts(0)
    nodes: NodePower = NodePower()
    every: Seconds = Seconds(60)
    cap: Watts | None = None
    queues: Mapping[str, Queue] = {}
    inrush: Inrush | None = None

    def __post_init__(self) -> None:
        caps = [self.cap, *(queue.cap for queue in self.queues.values())]
        if not all(self.nodes.low <= cap <= self.nodes.high for cap in caps if cap is not None):
            raise ValueError(f"caps must be between {self.nodes.low:g} W and {self.nodes.high:g} W, as nodes says")
        if self.every < 1:
            raise ValueError("every must be at least a second")
        if self.limit is not None and not self.band <= self.limit:
            raise ValueError("band is the lower edge, and must not be above limit")


class Policy(Document, frozen=True):
    """One document."""

    rules: Mapping[str, Rule] = {}
    """By their keys, in the order in which they are asked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._of_caps) > 1:
            rules = [key for key, rule in all_rules().items() if rule.says_caps]
            raise ValueError(f"only one of cap, queues and {' and '.join(rules)} can say what caps are")

    @property
    def _of_caps(self) -> list[str]:
        fixed = {"cap": self.cap is not None, "queues": bool(self.queues)}
        return [key for key, there in fixed.items() if there] + [k for k, rule in self.rules.items() if rule.says_caps]

    @property
    def sets_caps(self) -> bool:
        """Whether it says what caps are; otherwise whoever asks does."""
        return bool(self._of_caps)

    def limits(self) -> Limits:
        """What the ledger of caps is held to."""
        site = np.inf if self.limit is None else float(self.limit)
        return Limits(site=site, floor=self.band, ramp_up=self.ramp.up, ramp_down=self.ramp.down)

    def launch_cap(self, queue: int, upcap: float) -> float:
        """The cap that a job of ``queue`` starts with, if its user asked for ``upcap``."""
        cap = list(self.queues.values())[queue].cap if self.queues else self.cap
        highest = self.nodes.high if cap is None else cap
        return float(max(min(upcap, highest), self.nodes.low))


def _minutes(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,2}):([0-9]{2})", text)
    minute = int(found[1]) * 60 + int(found[2]) if found else 24 * 60 + 1
    if minute > 24 * 60 or (found and int(found[2]) > 59):
        raise ValueError(f"{text[:60]!r} is not a time of day such as 8:00")
    return minute


_T = TypeVar("_T", bound=Part)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""The service keeps it under its name."""
_WORDS = (
    (r"Object contains unknown field `(.*)`", r"unknown key '\1'"),
    (r"Object missing required field `(.*)`", r"\1 missing"),
    (r"Invalid enum value (.*)", r"\1 is none of "),
    (r"Expected `int.*", "expected a whole number"),
    (r"Expected `object.*", "expected a mapping (key: value)"),
    (r"Expected `(?:str|array)[^`]*`, got `.*", "expected text"),
)


def all_rules() -> Mapping[str, type[Rule]]:
    """Every rule that there is, by its key."""
    from strata.power.policies.rules import RULES

    found = {}
    for key, place in RULES.items():
        module, _, name = place.partition(":")
        found[key] = getattr(importlib.import_module(module), name)
    return found


def parse(text: str, *, source: str) -> Policy:
    """Read a policy. Raises ``BadRequest`` that names ``source``, the key, what was found and what is accepted."""
    found = tree(text, source) or {}
    if not isinstance(found, dict):
        raise BadRequest("expected a mapping (key: value)", where=source)
    known = all_rules()
    sections = {"queues", *known, *(field.encode_name for field in structs.fields(Document) if _part(field.type))}
    found = {key: {} if value == "" and key in sections else value for key, value in found.items()}
    rules = {key: _convert(found.pop(key), known[key], source, (key,)) for key in known if key in found}
    queues = found.get("queues")
    if isinstance(queues, dict):
        # One by one: an error says which.
        found["queues"] = {name: _convert(queues[name] or {}, Queue, source, ("queues", name)) for name in queues}
    document = _convert(found, Document, source, ())
    try:
        policy = Policy(**structs.asdict(document), rules=rules)
    except ValueError as error:
        raise BadRequest(str(error), where=source) from None
    if policy.name and not _NAME.fullmatch(policy.name):
        raise BadRequest(
            f"{policy.name[:80]!r} is no name: 1 to 63 letters, digits, '-', '_' and '.', first a letter or digit",
            where=f"{source}: name",
        )
    return policy


def _convert(data: Any, kind: type[_T], source: str, place: tuple[str, ...]) -> _T:
    try:
        return msgspec.convert(data, kind, strict=False, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind, source, place) from None


def _read(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("expected one value")
    return watts(value) if kind is Watts else seconds(value)


def _explain(message: str, kind: type[Part], source: str, place: tuple[str, ...]) -> BadRequest:
    """msgspec speaks of its types and of paths from a root; the document has keys and values."""
    said, _, path = message.partition(" - at `")
    below = tuple(filter(None, path.rstrip("`").removeprefix("key` in `").removeprefix("$").split(".")))
    where = ".".join((*place, *below))
    for pattern, words in _WORDS:
        detail, changed = re.subn(rf"{pattern}\Z", words, said, flags=re.DOTALL)
        if changed:
            break
    else:
        detail = said[:1].lower() + said[1:]
    if said.startswith("Object contains unknown field"):
        detail += _accepted(detail.split("'")[1], _at(kind, below))
    if said.startswith("Invalid enum value"):
        names = structs.fields(_at(kind, below[:-1]))
        *first, last = next(get_args(field.type) for field in names if field.encode_name == below[-1])
        detail += f"{', '.join(first)} and {last}"
    return BadRequest(detail[:300], where=f"{source}: {where}" if where else source)


def _part(annotation: Any) -> type[Part] | None:
    """The part that a field holds, if it holds one."""
    kinds = get_args(annotation) or (annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Part)), None)


def _at(kind: type[Part], keys: tuple[str, ...]) -> type[Part]:
    for key in keys:
        field = next((field for field in structs.fields(kind) if field.encode_name == key), None)
        kind = (_part(field.type) if field else None) or kind
    return kind


def _accepted(key: str, part: type[Part]) -> str:
    keys = [field.encode_name for field in structs.fields(part)]
    if part is Document:
        keys += all_rules()
    close = difflib.get_close_matches(key[:60], keys, 1)
    return f"; {f'did you mean {close[0]!r}? ' if close else ''}accepted are {', '.join(keys)}"
