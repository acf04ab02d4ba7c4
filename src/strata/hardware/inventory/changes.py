"""What has changed between two looks at the same hardware, and whether it is the same hardware at all. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from strata.hardware.inventory.records import Change, ChangeKind, Component, Found, Known, Machine, Parts

MOST_CHANGES = 200
"""Changes kept of one BMC at one time; more is a reorganisation, and one line says so."""


def is_stranger(known: Known, found: Found) -> str:
    """Why ``found`` is another BMC or machine than the one that is known at the address; empty: it is not.

    What either of them does not say is no difference.
    """
    for what, old, new in (
        ("the BMC's UUID", known.identity.uuid, found.identity.uuid),
        ("the serial", known.identity.serial, found.identity.serial),
    ):
        if old and new and old != new:
            return f"{what} was {old} and is {new}"
    before = {machine.id: machine for machine in known.machines}
    for machine in found.machines:
        if machine.id not in before and len(before) == len(found.machines) == 1:
            before = {machine.id: known.machines[0]}  # the one machine, under another name
        if machine.id in before and (why := _differs(before[machine.id], machine)):
            return why
    return ""


def _differs(old: Machine, new: Machine) -> str:
    if old.serial and new.serial and old.serial != new.serial:
        return f"the machine's serial was {old.serial} and is {new.serial}"
    if old.uuid and new.uuid and old.uuid != new.uuid:
        return f"the machine's UUID was {old.uuid} and is {new.uuid}"
    return ""


def with_unread(found: Found, before: Parts) -> Found:
    """``found``, with the parts from before that could not be read this time: not seen is not gone."""
    # A trouble begins with the path that could not be read; one without a path may have hidden anything.
    unread = [place if (place := trouble.partition(": ")[0]).startswith("/") else "/" for trouble in found.trouble]
    if not unread:
        return found

    def hidden(path: str) -> bool:
        # What a resource lists within itself has an id of the form PATH#/Fans/0.
        return any(place == "/" or path == place or path.startswith((f"{place}/", f"{place}#")) for place in unread)

    have = {part.id for part in found.components}
    ports = {port.id for port in found.ports}
    return msgspec.structs.replace(
        found,
        components=(*found.components, *(p for p in before.components if p.id not in have and hidden(p.id))),
        ports=(*found.ports, *(p for p in before.ports if p.id not in ports and hidden(p.id))),
    )


def changes(old: Sequence[Component], found: Found) -> list[Change]:
    """What was added, removed, swapped or moved within the BMC, fails or is well again, or has another firmware."""
    all_ = list(_changes({part.id: part for part in old}, {part.id: part for part in found.components}, found))
    if len(all_) <= MOST_CHANGES:
        return all_
    rest = f"and {len(all_) - MOST_CHANGES} more changes of parts"
    return [*all_[:MOST_CHANGES], Change(time=found.time, what="changed", bmc=found.address, detail=rest)]


def _changes(old: dict[str, Component], new: dict[str, Component], found: Found) -> Iterator[Change]:
    def change(what: ChangeKind, part: Component, before: str, after: str, detail: str = "") -> Change:
        return Change(
            time=found.time,
            what=what,
            bmc=found.address,
            machine=machine_of(part, new if part.id in new else old, found.machines),
            component=part.id,
            kind=part.kind,
            old=before,
            new=after,
            detail=detail or describe(part),
        )

    gone = {id_: part for id_, part in old.items() if id_ not in new}
    fresh = {id_: part for id_, part in new.items() if id_ not in old}
    by_serial = {(part.kind, part.serial): part for part in gone.values() if part.serial}
    for part in fresh.values():
        origin = by_serial.pop((part.kind, part.serial), None) if part.serial else None
        if origin is not None:
            del gone[origin.id]
            yield change("moved", part, place(origin), place(part), f"serial {part.serial}")
            if _unwell(origin):
                yield change("health", origin, origin.health or "", "ok", f"{describe(origin)} is gone from there")
        else:
            yield change("added", part, "", part.serial)
    off = " (the machine is off: it may only be hidden)" if any(m.power == "off" for m in found.machines) else ""
    for part in gone.values():
        yield change("removed", part, part.serial, "", describe(part) + off)
        if _unwell(part):
            yield change("health", part, part.health or "", "ok", f"{describe(part)} is gone")
    for id_, part in new.items():
        before = old.get(id_)
        if part.kind not in ROLLED_UP and part.health is not None:
            was = (before.health if before is not None else None) or "ok"
            if was != part.health:
                yield change("health", part, was, part.health)
        if before is None:
            continue
        if _other(before, part):
            yield change("swapped", part, before.serial or describe(before), part.serial or describe(part))
        elif before.firmware and part.firmware and before.firmware != part.firmware:
            yield change("changed", part, before.firmware, part.firmware, f"firmware of {describe(part)}")


ROLLED_UP = frozenset(("system", "chassis", "manager", "storage"))
"""Parts whose health is that of the worst part in them, which is told of by itself."""


def unwell(found: Found) -> list[Change]:
    """What is wrong with the parts of a BMC that was not known before."""
    parts = {part.id: part for part in found.components}
    return [change for change in _changes({}, parts, found) if change.what == "health"][:MOST_CHANGES]


def _unwell(part: Component) -> bool:
    return part.kind not in ROLLED_UP and part.health not in (None, "ok")


def _other(old: Component, new: Component) -> bool:
    if old.serial and new.serial:
        return old.serial != new.serial
    both = ((old.part, new.part), (old.model, new.model))
    return any(a and b and a != b for a, b in both)


def describe(part: Component) -> str:
    """A part in a few words."""
    words = (part.slot or part.name, " ".join(filter(None, (part.vendor, part.model))))
    return ": ".join(filter(None, words)) or part.id


def place(part: Component) -> str:
    """Where in its BMC a part is."""
    return part.slot or part.name or part.id


def machine_of(part: Component, parts: dict[str, Component], machines: Sequence[Machine]) -> str:
    """The address of the machine that a part is in; empty where that is not clear."""
    if len(machines) == 1:
        return machines[0].address
    inside = {machine.id: machine.address for machine in machines}
    chassis: dict[str, list[str]] = {}
    for machine in machines:
        within = parts[machine.id].parent if machine.id in parts else ""
        chassis.setdefault(within, []).append(machine.address)
    at: Component | None = part
    for _ in range(16):
        if at is None:
            return ""
        if at.id in inside:
            return inside[at.id]
        if len(chassis.get(at.id, ())) == 1:
            return chassis[at.id][0]
        at = parts.get(at.parent)
    return ""
