"""Steps that are waited for in vain: what they need is gone, and they end when that is certain."""

from __future__ import annotations

import numpy as np
import pytest

from strata.engine.faults import EVENT
from strata.engine.hopeless import fatal
from strata.engine.progress import Phase
from strata.engine.settings import EngineSettings
from strata.virtual.fleet.faults import Timing
from support.pure_fleet import BUILT_IN, READY, PureFleet

BOOT = BUILT_IN.mutations["boot"]
SLOW_BOOT = Timing(seconds={"power-on": 5.0, "boot": 190.0})
"""Up to 285 s, within the limit of 300 and longer than anything here waits for."""
LOST = "boot failed: power went off while it waited for os to be up"


def is_booting(fleet: PureFleet, node: int) -> bool:
    """Whether the node was told to boot, and the engine waits for it."""
    work, courses = fleet.engine.progress, fleet.engine.in_flight
    return bool(work.phase[node] == Phase.SETTLING) and courses.mutations[work.mutation[node]].name == "boot"


def booting(count: int = 1, settings: EngineSettings | None = None) -> PureFleet:
    fleet = PureFleet(count, timing=SLOW_BOOT, settings=settings)
    fleet.want(os="up")
    assert fleet.run(60, lambda: all(is_booting(fleet, node) for node in range(count)))
    return fleet


def lose_power(fleet: PureFleet, node: int = 0) -> None:
    fleet.sim.power_loss(np.array([node]), now=fleet.now)


def test_a_step_is_over_with_what_it_requires_and_does_not_outlive() -> None:
    assert fatal(BUILT_IN, BOOT) == {"power": {"off"}}
    assert list(fatal(BUILT_IN, BUILT_IN.mutations["load-image"])) == ["os", "power"], "the deepest last"
    assert fatal(BUILT_IN, BUILT_IN.mutations["join-workload"])["personality"] == {"idle", "error", "fatal"}


def test_a_step_that_requires_nothing_or_changes_it_itself_is_never_over_before_its_time() -> None:
    assert fatal(BUILT_IN, BUILT_IN.mutations["leave-workload"]) == {}, "a dead node can be taken out"
    assert "personality" not in fatal(BUILT_IN, BUILT_IN.mutations["switch-image"])


@pytest.mark.slow
def test_power_that_is_lost_in_the_middle_of_a_boot_ends_the_boot_with_that_reason() -> None:
    fleet = booting(2)
    lose_power(fleet)
    lost = fleet.now
    assert fleet.run(150, lambda: LOST in fleet.history(0, EVENT))
    assert fleet.now - lost < 150
    assert f"last trouble: {LOST}" in fleet.why(0).lines
    assert fleet.why(0).blockers[0].kind == "back-off"
    assert is_booting(fleet, 1), "the other boots on"
    fleet.converge()
    assert fleet.acts_on(0) == ["power-on", "boot", "power-on", "boot"]
    assert fleet.acts_on(1) == ["power-on", "boot"]


@pytest.mark.slow
def test_an_event_shows_it_sooner_than_a_sweep_does() -> None:
    fleet = booting()
    lose_power(fleet)
    lost = fleet.now
    fleet.engine.facts.schedule_look(fleet.nodes, None, fleet.now)
    assert fleet.run(150, lambda: LOST in fleet.history(0, EVENT))
    settings = EngineSettings()
    assert fleet.now - lost <= settings.hopeless_after + settings.longest_poll + 1


@pytest.mark.slow
def test_power_that_is_off_for_a_moment_ends_nothing() -> None:
    """Whoever starts a node by cycling its power sees it off in between."""
    fleet = booting()
    settled = fleet.engine.progress.generation[0]
    for _ in range(3):
        lose_power(fleet)
        fleet.engine.facts.schedule_look(fleet.nodes, None, fleet.now)
        assert fleet.run(5, lambda: fleet.fact(0, "power") == "off")
        fleet.sim.put(fleet.nodes, now=fleet.now, power="on")
        fleet.engine.facts.schedule_look(fleet.nodes, None, fleet.now)
        assert fleet.run(15, lambda: fleet.fact(0, "power") == "on")
    assert fleet.engine.progress.generation[0] == settled, "it is the same boot still"
    assert not fleet.history(0, EVENT)


@pytest.mark.slow
def test_a_controller_that_falls_silent_proves_nothing() -> None:
    fleet = booting()
    lose_power(fleet)
    fleet.engine.facts.schedule_look(fleet.nodes, None, fleet.now)
    assert fleet.run(5, lambda: fleet.fact(0, "power") == "off")
    fleet.sim.bmc_dead[0] = True
    fleet.run(150)
    assert fleet.fact(0, "power") == "unknown"
    assert is_booting(fleet, 0)


@pytest.mark.slow
def test_again_and_again_it_is_a_fault_that_names_the_power() -> None:
    fleet = booting(settings=EngineSettings(fault_retry=0))

    def off_again() -> bool:
        if is_booting(fleet, 0) and fleet.fact(0, "power") == "on":
            lose_power(fleet)
        return fleet.state(0) == "faulted"

    assert fleet.run(600, off_again)
    assert fleet.why(0).blockers[0].name == LOST
    assert fleet.acts_on(0) == ["power-on", "boot"] * 3


@pytest.mark.slow
def test_what_somebody_else_began_before_the_power_went_is_nobodys_failure() -> None:
    fleet = booting()
    lose_power(fleet)
    fleet.restart(resume={"boot": [0]})
    events = "boot, begun before a restart, did not show: power went off"
    assert fleet.run(90, lambda: events in fleet.history(0, EVENT))
    assert fleet.engine.progress.failures[0] == 0
    fleet.converge()


@pytest.mark.slow
def test_of_many_things_that_are_gone_the_deepest_is_named() -> None:
    fleet = PureFleet(1, timing=Timing(seconds={"power-on": 5.0, "boot": 5.0, "enrol": 0.5, "load-image": 250.0}))
    fleet.want(**{name: READY[name] for name in ("power", "os", "image")})
    loading = "load-image"
    assert fleet.run(
        120, lambda: fleet.acts_on(0)[-1:] == [loading] and fleet.engine.progress.phase[0] == Phase.SETTLING
    )
    lose_power(fleet)
    lost = f"{loading} failed: power went off while it waited for image to be wanted"
    assert fleet.run(120, lambda: lost in fleet.history(0, EVENT))
