"""What history names as the cause of a change: the act that was under way, if the change is its doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Mutation
from strata.core.state import Outcome
from support.pure_fleet import READY, PureFleet

pytestmark = pytest.mark.slow


class Hidden:
    """Agents that nobody hears for a while. A boot of a node that may run is accepted, and nothing is done."""

    name = "node"

    def __init__(self, fleet: PureFleet) -> None:
        self._real = fleet.drivers["node"]
        self.away = True
        self.instead: dict[str, str] = {}
        self.taken: list[str] = []

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        self.taken.append(mutation.name)
        return Outcomes.all(Outcome.DONE, len(batch))

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        if self.away:
            return {}
        seen = await self._real.observe(variables, batch)
        return {
            name: Column.same(self.instead.get(name), len(batch)) if name in self.instead else column
            for name, column in seen.items()
        }

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return await self._real.permits(guard, batch)


def causes(fleet: PureFleet, since: int) -> dict[tuple[str, str], str]:
    """Of the changes since then: variable and new value → cause."""
    return {(change.variable, change.new): change.cause for _, change in fleet.changes[since:]}


def restarted(fleet: PureFleet) -> None:
    """A new engine that has read the log, as a service does that starts again."""
    epoch = fleet.epoch + 1
    fleet.restart()
    fleet.engine.lead(0, 0, fleet.now)
    for _, change in fleet.changes:
        fleet.engine.mirror(change.variable, change.new, change.nodes, fleet.now)
    fleet.engine.lead(0, epoch, fleet.now)


def test_each_change_on_the_way_up_names_the_act_that_promised_it() -> None:
    fleet = PureFleet(1)
    fleet.want(**READY)
    fleet.converge()
    found = causes(fleet, 0)
    assert found["power", "on"] == "power-on"
    assert found["os", "up"] == "boot"
    assert found["image", "v1"] == "load-image"
    assert found["personality", "active"] == "start-personality"


def test_facts_that_are_merely_seen_again_after_a_restart_are_nobodys_doing() -> None:
    """The agents were out of sight for so long that history says ``unknown``; the nodes ran all the time."""
    fleet = PureFleet(3)
    fleet.want(**READY)
    fleet.converge()
    hidden = fleet.drivers["node"] = Hidden(fleet)
    fleet.run(200)
    assert fleet.history(0, "os")[-1] == "unknown"
    since = len(fleet.changes)
    restarted(fleet)
    fleet.run(60, lambda: "boot" in hidden.taken)
    assert "boot" in hidden.taken, "it may be down, for all that is known"
    hidden.away = False
    fleet.converge()
    found = causes(fleet, since)
    assert found["os", "up"] == ""
    assert "boot" not in found.values()


def test_what_changed_while_nobody_looked_is_not_put_down_to_an_act_that_promises_something_else() -> None:
    fleet = PureFleet(1)
    fleet.want(**READY)
    fleet.converge()
    hidden = fleet.drivers["node"] = Hidden(fleet)
    fleet.run(200)
    since = len(fleet.changes)
    restarted(fleet)
    fleet.run(60, lambda: "boot" in hidden.taken)
    hidden.instead = {"personality": "error"}
    hidden.away = False
    fleet.run(5)
    assert causes(fleet, since)["personality", "error"] == "", "a boot promises one that is idle"


def test_a_node_that_really_boots_again_has_its_facts_from_that_boot() -> None:
    fleet = PureFleet(1)
    fleet.want(**READY)
    fleet.converge()
    since = len(fleet.changes)
    fleet.want(power="off", os="", image="", personality="", config="", workload="")
    fleet.converge()
    fleet.want(**READY)
    fleet.converge()
    found = causes(fleet, since)
    assert found["power", "off"] == "power-off"
    assert found["os", "up"] == "boot"
