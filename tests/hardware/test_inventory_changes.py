"""What has changed between two looks at the same hardware."""

from __future__ import annotations

import msgspec
from test_inventory_store import SYSTEM, found, part

from strata.hardware.bmc.protocol import Identity
from strata.hardware.inventory.changes import MOST_CHANGES, changes, is_stranger, machine_of
from strata.hardware.inventory.records import Component, Known, Machine


def told(*parts: Component, before: tuple[Component, ...] = ()) -> list[tuple[str, str, str]]:
    now = found(1, *parts)
    return [(c.what, c.old, c.new) for c in changes((now.components[0], *before), now)]


def test_added_removed_and_swapped() -> None:
    assert told(part("A", "1"), before=(part("A", "1"),)) == []
    assert told(part("A", "1"), part("B", "2"), before=(part("A", "1"),)) == [("added", "", "2")]
    assert told(before=(part("A", "1"),)) == [("removed", "1", "")]
    assert told(part("A", "2"), before=(part("A", "1"),)) == [("swapped", "1", "2")]


def test_a_part_in_another_slot_has_moved() -> None:
    assert told(part("B", "1"), before=(part("A", "1"),)) == [("moved", "A", "B")]


def test_without_serials_another_model_is_a_swap() -> None:
    assert [what for what, _, _ in told(part("A", model="X"), before=(part("A", model="Y"),))] == ["swapped"]
    assert told(part("A", "1", model="X"), before=(part("A", "1", model="Y"),)) == []
    assert told(part("A", "1"), before=(part("A"),)) == [], "a serial that is told for the first time is no swap"


def test_other_firmware_is_a_change() -> None:
    assert told(part("A", "1", firmware="2"), before=(part("A", "1", firmware="1"),)) == [("changed", "1", "2")]


def test_what_disappears_while_the_machine_is_off_may_only_be_hidden() -> None:
    now = found(1)
    now = msgspec.structs.replace(now, machines=(msgspec.structs.replace(now.machines[0], power="off"),))
    [change] = changes((now.components[0], part("A", "1")), now)
    assert "may only be hidden" in change.detail


def test_a_reorganisation_is_cut() -> None:
    now = found(1, *(part(f"P{i}", f"{i}") for i in range(MOST_CHANGES + 50)))
    all_ = changes((now.components[0],), now)
    assert len(all_) == MOST_CHANGES + 1
    assert all_[-1].detail == "and 50 more changes of parts"


def known(**machine: str) -> Known:
    one = Machine(id=SYSTEM, address="https://bmc1", **machine)  # type: ignore[arg-type]
    identity = Identity(serial=machine.get("serial", ""))
    return Known(address="https://bmc1", identity=identity, first=1.0, seen=1.0, digest=b"", machines=(one,))


def test_a_stranger_is_told_by_what_both_say() -> None:
    uuid, other = "cd7c5cdd-c6ef-46ed-9827-413362e178de", "ad7c5cdd-c6ef-46ed-9827-413362e178de"
    assert is_stranger(known(serial="S1"), found(1)) == ""
    assert "was S9 and is S1" in is_stranger(known(serial="S9"), found(1))
    assert "UUID" in is_stranger(known(serial="S1", uuid=other), found(1, uuid=uuid))
    assert is_stranger(known(serial="", uuid=uuid), found(1, uuid=uuid)) == ""
    assert is_stranger(known(serial="S1", uuid=uuid), found(1)) == "", "what is not told is no difference"


def test_a_part_belongs_to_the_machine_that_it_is_in() -> None:
    a, b = "/redfish/v1/Systems/A", "/redfish/v1/Systems/B"
    machines = (Machine(id=a, address="x/A"), Machine(id=b, address="x/B"))
    parts = {
        p.id: p
        for p in (
            Component(id=a, kind="system", parent="/c/1"),
            Component(id=b, kind="system", parent="/c/2"),
            Component(id="/c/1", kind="chassis", parent="/c/0"),
            Component(id="/c/2", kind="chassis", parent="/c/0"),
            Component(id="/c/0", kind="chassis", parent="/c/0"),
            Component(id="/c/1/psu", kind="power-supply", parent="/c/1"),
            Component(id=f"{b}/dimm", kind="memory", parent=b),
        )
    }
    assert machine_of(parts["/c/1/psu"], parts, machines) == "x/A"
    assert machine_of(parts[f"{b}/dimm"], parts, machines) == "x/B"
    assert machine_of(parts["/c/0"], parts, machines) == "", "what two machines share is of neither"
