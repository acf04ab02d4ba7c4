"""What to read of a Redfish BMC to know its node's power, in as few requests as it allows.

Found once for each BMC, then read over and over: reports of its TelemetryService, EnvironmentMetrics, the old
Power, or its Sensors, whichever tells the most in one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from strata.core.errors import NotOffered
from strata.hardware.bmc.caps import of_part
from strata.hardware.bmc.redfish.client import ROOT, Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import items, path_of, text
from strata.hardware.bmc.redfish.find import follow, home, maybe, members, service, system
from strata.hardware.bmc.redfish.pairing import Home, Where
from strata.hardware.bmc.redfish.sensors import number
from strata.power.telemetry import values as cv
from strata.power.telemetry.values import Values

FAST = ("power", "energy", "accel-power", "cap", "accel-cap")
"""Read in every sweep; temperatures change slowly and cost the most."""
MOST_REPORTS = 16
_ACCELERATORS = ("GPU", "Accelerator", "FPGA")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that are read together, and what they tell."""

    paths: tuple[str, ...]
    of: Callable[[Sequence[Json]], Values]
    gives: frozenset[str]
    rank: int
    """Of two that tell as much, the lower is read."""
    members: bool = False
    """The path is a collection, of which all members are read."""
    report: bool = False
    """It is made now and then: one that was seen before is no new measurement."""


class Plan(msgspec.Struct, eq=False):
    """What is read of one BMC: in every sweep, and now and then."""

    fast: tuple[Part, ...]
    slow: tuple[Part, ...]
    of_report: Callable[[Json], Values]
    """What a metric report says of this node."""
    fixed: Values
    """What does not change: what its supplies can give."""
    kind: str
    """Maker and model of the machine; empty: it does not say."""
    made: dict[str, str] = {}
    """Report → when it was made, as it says itself."""


async def make_plan(client: RedfishClient, target: Target) -> Plan:
    """Look around. Raises ``NotOffered`` where nothing tells of power."""
    parts: list[Part] = []
    known: dict[str, Json] = {}
    fixed: Values = {}
    near = await home(client, target)
    own: list[str] = [f"{target.resource}/"] if target.resource else []
    ours = _ours(near, follow(target))
    for path in near.own:  # what several nodes draw together, in a chassis that they share, is not what this one draws
        body = await maybe(client, target, path)
        own.append(f"{path}/")
        parts += await _of_chassis(client, target, body, known, ours)
        fixed |= await _supply(client, target, body, ours)
    parts += await _of_shared(client, target, near)
    parts += await _accelerators(client, target)
    parts += await _reports(client, target, known, own)
    fast = _cover(parts, FAST)
    if not any("power" in part.gives or "energy" in part.gives for part in fast):
        raise NotOffered("it does not report what its node draws", node=target.address)
    told = frozenset().union(*(part.gives for part in fast))
    slow = () if "temperature" in told else _cover(parts, ("temperature",)) or _cover(parts, ("air",))
    return Plan(
        fast,
        tuple(part for part in slow if part not in fast),
        lambda body: cv.from_report(body, known, own),
        fixed,
        await _kind(client, target),
    )


async def read_plan(client: RedfishClient, target: Target, plan: Plan, *, slow: bool) -> tuple[Values, float | None]:
    """Read it. What two parts tell is taken from the first. And when the BMC read the node's energy counter, by its own
    clock, where it says."""
    values: Values = {}
    read_at: float | None = None
    for part in (*plan.fast, *(plan.slow if slow else ())):
        bodies: list[Json] = []
        for path in part.paths:
            # One resource that is gone or wrong does not hide the rest; a BMC that does not answer is an error.
            bodies += await members(client, target, path) if part.members else [await maybe(client, target, path)]
        if part.report and not _new(plan, part.paths[0], bodies):
            continue
        told = part.of(bodies)
        if "energy" in told and "energy" not in values:
            read_at = cv.read_at(bodies)
        values = told | values
    if "temperature" not in values and "air" in values and plan.slow and slow:
        values["temperature"] = values["air"]
    values.pop("air", None)
    return values | plan.fixed if values else values, read_at


def _new(plan: Plan, path: str, bodies: Sequence[Json]) -> bool:
    made = text(bodies[0].get("Timestamp"), 64) if bodies else ""
    seen = plan.made.get(path)
    plan.made[path] = made
    return not made or made != seen


def _cover(parts: Sequence[Part], wanted: Iterable[str]) -> tuple[Part, ...]:
    """Few parts that together tell what is wanted, as far as any do."""
    missing, chosen = set(wanted), list[Part]()
    while True:
        best = max(parts, key=lambda part: (len(part.gives & missing), -part.rank), default=None)
        if best is None or not best.gives & missing:
            return tuple(chosen)
        chosen.append(best)
        missing -= best.gives


def _ours(near: Home, where: Where, *, sure: bool = False) -> Callable[[Json], bool]:
    """Whether a sensor or control is this node's: unless it says that it is another's, or (``sure``) if it says so."""

    def ours(item: Json) -> bool:
        relation = near.relation(item, where)
        return relation == "own" or (relation == "" and not sure)

    return ours


async def _of_chassis(
    client: RedfishClient, target: Target, body: Json, known: dict[str, Json], ours: Callable[[Json], bool]
) -> list[Part]:
    found: list[Part] = []

    def add(path: str, values: Values, of: Callable[[Sequence[Json]], Values], rank: int, many: bool = False) -> None:
        if path and values:
            found.append(Part(paths=(path,), of=of, gives=frozenset(values), rank=rank, members=many))

    def power(bodies: Sequence[Json]) -> Values:
        return cv.from_power(bodies[0], ours)

    def thermal(bodies: Sequence[Json]) -> Values:
        return cv.from_thermal(bodies[0], ours)

    def sensed(bodies: Sequence[Json]) -> Values:
        return cv.from_sensors([one for one in bodies if ours(one)])

    path = path_of(target.bmc, body.get("EnvironmentMetrics"))
    add(path, cv.from_environment(await maybe(client, target, path)), _first(cv.from_environment), 1)
    path = path_of(target.bmc, body.get("Power"))
    add(path, power([await maybe(client, target, path)]), power, 2)
    path = path_of(target.bmc, body.get("Thermal"))
    add(path, thermal([await maybe(client, target, path)]), thermal, 2)
    path = path_of(target.bmc, body.get("Sensors"))
    sensors = await members(client, target, path)
    known |= {path_of(target.bmc, one): one for one in sensors if ours(one)}
    add(path, sensed(sensors), sensed, 4, True)
    for control in await members(client, target, path_of(target.bmc, body.get("Controls"))):
        path, name = path_of(target.bmc, control), text(control.get("Name"))
        capping = control.get("ControlType") == "Power" and "SetPoint" in control
        if capping and ours(control) and not of_part(path, name):
            add(path, cv.cap_of(control), _first(cv.cap_of), 3)
            break
    return found


async def _of_shared(client: RedfishClient, target: Target, near: Home) -> list[Part]:
    """What the old Power of a chassis with several nodes says of this one, where it says of which."""
    ours = _ours(near, follow(target), sure=True)

    def power(bodies: Sequence[Json]) -> Values:
        return cv.from_power(bodies[0], ours)

    found = []
    for chassis in near.shared:
        path = path_of(target.bmc, (await maybe(client, target, chassis)).get("Power"))
        values = power([await maybe(client, target, path)])
        if values:
            found.append(Part(paths=(path,), of=power, gives=frozenset(values), rank=2))
    return found


async def _supply(client: RedfishClient, target: Target, body: Json, ours: Callable[[Json], bool]) -> Values:
    """What the supplies of a chassis can give."""
    subsystem = await maybe(client, target, path_of(target.bmc, body.get("PowerSubsystem")))
    told = number(subsystem.get("CapacityWatts"))
    if told is None:
        power = await maybe(client, target, path_of(target.bmc, body.get("Power")))
        listed = [one for one in items(power, "PowerControl") if ours(one)]
        told = next((number(one.get("PowerCapacityWatts")) for one in listed), None)
    return {"supply": told} if told is not None and told > 0 else {}


async def _kind(client: RedfishClient, target: Target) -> str:
    if not target.resource.startswith(f"{ROOT}/Systems/"):
        return ""
    body = await system(client, target)
    return " ".join(filter(None, (text(body.get("Manufacturer"), 60), text(body.get("Model"), 60))))


async def _accelerators(client: RedfishClient, target: Target) -> list[Part]:
    """Accelerators that have EnvironmentMetrics of their own, all of them as one part: they add up."""
    if not target.resource.startswith(f"{ROOT}/Systems/"):
        return []
    processors = await members(client, target, path_of(target.bmc, (await system(client, target)).get("Processors")))
    paths = [
        path
        for one in processors
        if one.get("ProcessorType") in _ACCELERATORS and (path := path_of(target.bmc, one.get("EnvironmentMetrics")))
    ]
    values = _gpus([await maybe(client, target, path) for path in paths])
    return [Part(paths=tuple(paths), of=_gpus, gives=frozenset(values), rank=3)] if values else []


async def _reports(client: RedfishClient, target: Target, known: Mapping[str, Json], own: Sequence[str]) -> list[Part]:
    try:
        body = await service(client, target, "TelemetryService")
    except NotOffered:
        return []
    if body.get("ServiceEnabled") is False:
        return []

    def of(bodies: Sequence[Json]) -> Values:
        return cv.from_report(bodies[0], known, own)

    found = []
    for report in (await members(client, target, path_of(target.bmc, body.get("MetricReports"))))[:MOST_REPORTS]:
        values, path = of([report]), path_of(target.bmc, report)
        if values and path:
            found.append(Part(paths=(path,), of=of, gives=frozenset(values), rank=0, report=True))
    return found


def _first(of: Callable[[Json], Values]) -> Callable[[Sequence[Json]], Values]:
    """For a part that is one resource."""
    return lambda bodies: of(bodies[0])


def _gpus(bodies: Sequence[Json]) -> Values:
    """Watts add up, and so do caps and their bounds; a total of which a part is missing is none."""
    each = [cv.from_environment(body, accelerator=True) for body in bodies]
    names = frozenset[str]().union(*each) if each else frozenset[str]()
    return {name: sum(one[name] for one in each) for name in names if all(name in one for one in each)}
