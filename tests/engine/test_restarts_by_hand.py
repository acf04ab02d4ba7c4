"""Nodes that a person has restarted: what is believed of them, and how soon they come back."""

from __future__ import annotations

import numpy as np
import pytest

from strata.engine.progress import Phase
from support.pure_fleet import READY, PureFleet

pytestmark = pytest.mark.slow


def restart(fleet: PureFleet) -> None:
    fleet.sim.put(
        fleet.nodes, now=fleet.now, os="down", identity="none", image="absent", personality="idle", workload="out"
    )
    fleet.engine.restarted(fleet.nodes, fleet.now)


def never_waits(fleet: PureFleet) -> None:
    """It comes to its goal, and is at no moment held up by a failure or a relapse."""

    def there() -> bool:
        assert not fleet.engine.progress.relapses.any() and not fleet.engine.progress.failures.any(), fleet.why(0)
        return fleet.all_ready()

    assert fleet.run(1000, there), fleet.why(0)


def test_a_node_that_is_restarted_again_and_again_comes_back_without_waiting() -> None:
    fleet = PureFleet(1)
    fleet.want(**READY)
    fleet.converge()
    for _ in range(5):
        restart(fleet)
        never_waits(fleet)


def test_what_a_restart_takes_away_is_not_believed_until_it_is_seen() -> None:
    fleet = PureFleet(1)
    fleet.want(**READY)
    fleet.converge()
    restart(fleet)
    assert (fleet.fact(0, "os"), fleet.state(0)) == ("unknown", "unknown"), "at once, before the engine's next step"
    fleet.step()
    assert fleet.state(0) == "unknown"


@pytest.mark.parametrize("step", ["load-image", "start-personality"])
def test_a_step_that_needs_what_a_restart_takes_away_is_not_waited_for(step: str) -> None:
    fleet = PureFleet(1)
    fleet.want(**READY)
    number = fleet.engine.in_flight.numbers[step]
    progress = fleet.engine.progress
    settling = fleet.run(1000, lambda: bool(progress.phase[0] == Phase.SETTLING and progress.mutation[0] == number))
    assert settling
    restart(fleet)
    assert np.all(progress.phase[fleet.nodes] == Phase.IDLE)
    never_waits(fleet)
