"""What the engine does about a personality that is in trouble, which its agent may be mending by itself."""

from __future__ import annotations

import pytest

from support.pure_fleet import READY, PureFleet


def fallen(word: str) -> PureFleet:
    """A node that was ready, and whose agent now says this of its personality."""
    fleet = PureFleet(1)
    fleet.want(**READY)
    fleet.converge()
    fleet.acts.clear()
    fleet.sim.put(fleet.nodes, now=fleet.now, personality=word)
    fleet.engine.facts.schedule_look(fleet.nodes, None, fleet.now)
    assert fleet.run(60, lambda: word in fleet.history(0, "personality"))
    return fleet


@pytest.mark.slow
def test_one_member_in_error_never_has_the_whole_set_stopped() -> None:
    fleet = fallen("error")
    fleet.converge()
    assert fleet.acts_on(0)[0] == "start-personality"
    assert "stop-personality" not in fleet.acts_on(0)


@pytest.mark.slow
def test_an_error_that_lasts_is_a_failure_to_start_and_never_a_reason_to_stop() -> None:
    fleet = fallen("error")

    def still_in_error() -> bool:
        fleet.sim.put(fleet.nodes, now=fleet.now, personality="error")
        return fleet.state(0) == "faulted"

    assert fleet.run(3600, still_in_error)
    assert "personality is still error after 120 s" in fleet.why(0).blockers[0].name
    assert set(fleet.acts_on(0)) == {"start-personality"}


@pytest.mark.slow
def test_a_set_that_the_agent_gave_up_is_stopped_and_started_anew() -> None:
    fleet = fallen("fatal")
    fleet.converge()
    acts = [act for act in fleet.acts_on(0) if "personality" in act]
    assert acts == ["stop-personality", "start-personality"]


@pytest.mark.slow
def test_an_agent_that_gives_up_while_it_is_waited_for_ends_the_wait() -> None:
    fleet = fallen("error")
    assert fleet.run(60, lambda: fleet.acts_on(0) == ["start-personality"])
    fleet.sim.put(fleet.nodes, now=fleet.now, personality="fatal")
    assert fleet.run(30, lambda: "start-personality failed: personality went to fatal" in fleet.history(0, "event"))
    fleet.converge()
    assert [act for act in fleet.acts_on(0) if "personality" in act][1:] == ["stop-personality", "start-personality"]
