"""The one word for a node's state."""

from __future__ import annotations

import numpy as np
import pytest

from strata.core.state import STATES
from strata.engine.decisions import Kind
from strata.engine.explain import state_of, states
from strata.engine.progress import Phase, Wait
from support.pure_fleet import READY, PureFleet


def fleet_in(**columns: list[int]) -> PureFleet:
    """A fleet that is ready, with some columns of the engine's work put as given, one value per node."""
    fleet = PureFleet(len(next(iter(columns.values()))))
    fleet.want(**READY)
    fleet.converge()
    for name, values in columns.items():
        getattr(fleet.engine.progress, name)[fleet.nodes] = values
    return fleet


def words(fleet: PureFleet) -> list[str]:
    return [STATES[number] for number in states(fleet.engine, fleet.nodes).tolist()]


@pytest.mark.slow
def test_one_node_has_the_state_that_it_has_in_the_fleet() -> None:
    rng = np.random.default_rng(5)
    many = 500
    fleet = fleet_in(
        kind=rng.integers(0, len(Kind), many).tolist(),
        wait=rng.integers(0, len(Wait), many).tolist(),
        phase=rng.integers(0, len(Phase), many).tolist(),
        fault=rng.integers(0, 2, many).tolist(),
        frozen=rng.integers(0, 2, many).tolist(),
        held=rng.integers(0, 2, many).tolist(),
    )
    power = fleet.engine.table.columns["power"]
    power.fact[fleet.nodes] = rng.integers(0, len(power.words), many)
    assert words(fleet) == [STATES[state_of(fleet.engine, node)] for node in fleet.nodes.tolist()]
    assert set(words(fleet)) == set(STATES)


def test_a_persons_brake_is_named_before_a_fault_and_a_fault_before_a_wait() -> None:
    act = [int(Kind.ACT)] * 4
    wait = [int(Wait.BACKOFF)] * 4
    fleet = fleet_in(kind=act, wait=wait, held=[1, 0, 0, 0], frozen=[1, 1, 0, 0], fault=[1, 1, 1, 0])
    assert words(fleet) == ["held", "frozen", "faulted", "waiting"]


def test_a_ready_node_stays_ready_under_a_freeze_but_not_under_a_hold() -> None:
    assert words(fleet_in(frozen=[1, 0], held=[0, 1])) == ["ready", "held"]


def test_a_node_that_is_to_be_off_and_is_so_is_told_as_off() -> None:
    fleet = PureFleet(3)
    fleet.want(power="on")
    fleet.converge()
    fleet.want(nodes=[0, 1], power="off")
    fleet.converge()
    assert words(fleet) == ["off", "off", "ready"]
    assert fleet.why(0).summary == "It is at its goal, and off."
    fleet.engine.progress.frozen[0] = fleet.engine.progress.held[1] = True
    assert words(fleet) == ["off", "held", "ready"]
    assert words(fleet) == [STATES[state_of(fleet.engine, node)] for node in fleet.nodes.tolist()]


def test_what_is_under_way_goes_on_under_a_brake() -> None:
    fleet = fleet_in(kind=[int(Kind.ACT)], phase=[int(Phase.ACTING)], held=[1])
    assert words(fleet) == ["converging"]


def test_a_held_node_is_held_while_a_step_has_yet_to_show() -> None:
    """Nothing follows that step; a boot can take minutes to show, or to be given up."""
    act, settling = [int(Kind.ACT)] * 3, [int(Phase.SETTLING)] * 3
    fleet = fleet_in(kind=act, phase=settling, mutation=[0] * 3, held=[1, 0, 0], frozen=[0, 1, 0])
    assert words(fleet) == ["held", "frozen", "converging"]
    assert [blocker.kind for node in range(3) for blocker in fleet.why(node).blockers] == ["hold", "freeze"]


def test_what_is_under_way_is_not_told_as_what_comes_next() -> None:
    fleet = PureFleet(1)
    fleet.want(**READY)
    assert fleet.run(1000.0, until=lambda: bool(fleet.engine.progress.phase[0] == Phase.SETTLING))
    said = fleet.why(0)
    assert "was accepted" in said.summary
    assert (said.mutation, said.observe) == ("", ())
