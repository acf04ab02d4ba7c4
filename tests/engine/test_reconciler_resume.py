"""What a controller makes of the records that one before it left behind."""

from __future__ import annotations

import pytest

from strata.virtual.fleet.faults import Timing
from support.pure_fleet import READY, PureFleet

pytestmark = pytest.mark.slow

COUNT = 40


def test_what_was_written_down_and_never_sent_is_done_in_the_end_and_is_nobodys_failure() -> None:
    fleet = PureFleet(COUNT)
    fleet.want(**READY)
    fleet.restart(resume={"power-on": range(COUNT)})
    fleet.converge()
    assert fleet.sim.effects.counts()["power-on"] == COUNT
    assert fleet.sim.effects.idle() == 0
    power_on = [mutation.name for mutation in fleet.engine.in_flight.mutations].index("power-on")
    assert fleet.engine.in_flight.breakers[power_on].stopped_since is None
    assert not any("failed" in event for node in range(COUNT) for event in fleet.history(node, "event"))
    assert any("did not show in 120 s" in event for event in fleet.history(0, "event"))


def test_what_was_sent_is_waited_for_and_not_done_again() -> None:
    fleet = PureFleet(COUNT, timing=Timing(scale=1.0))
    fleet.want(**READY)
    assert fleet.run(60, until=lambda: fleet.sim.effects.counts().get("boot", 0) == COUNT)
    fleet.restart(resume={"boot": range(COUNT)})
    fleet.converge()
    assert fleet.sim.effects.counts()["boot"] == COUNT
    assert fleet.sim.effects.idle() == 0


def test_of_two_records_for_one_node_the_older_has_ended() -> None:
    fleet = PureFleet(2, timing=Timing(scale=1.0))
    fleet.want(**READY)
    assert fleet.run(60, until=lambda: fleet.sim.effects.counts().get("boot", 0) == 2)
    fleet.restart()
    older = fleet.engine.in_flight.resume("power-on", fleet.nodes, fleet.now)
    fleet.engine.in_flight.resume("boot", fleet.nodes, fleet.now)
    assert fleet.step().settled == [older]
    fleet.converge()
    assert fleet.sim.effects.counts()["boot"] == 2
