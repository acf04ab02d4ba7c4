"""What is told is believed at once, and no look that was begun before overwrites it."""

from __future__ import annotations

import numpy as np

from strata.core.column import Column
from strata.core.driver import Outcomes
from strata.core.model import Layer, Model, Mutation, Variable, values
from strata.core.state import Outcome
from strata.engine.effects import Act, Done, Effects, Look, Seen, Told
from strata.engine.reconciler import Engine

NODES = np.arange(2)
INTERVAL = 45.0
"""Seconds between looks: half of how long a fact lasts."""

MODEL = Model.of(
    Layer(
        variables=(
            Variable(
                name="os",
                values=("down", "up"),
                ages_out_after=90,
                lost_when={"power": values("off")},
                implies={"up": {"power": "on"}},
                observer="node",
            ),
            Variable(name="image", values=("a", "b"), ages_out_after=90, observer="node"),
            Variable(name="power", values=("off", "on"), ages_out_after=90, observer="bmc"),
        ),
        mutations=(
            Mutation(name="load", variable="image", start=values("a"), to="b", driver="node", cost=1, timeout=60),
        ),
    )
)


class Site:
    """Two nodes, all looks in flight, and a clock."""

    def __init__(self) -> None:
        self.engine = Engine(MODEL)
        self.engine.add(NODES, np.zeros(2, dtype=np.int32), 0.0)
        self.engine.lead(0, 1, 0.0)
        self.looks = {look.driver: look for look in self.engine.step(0.0).looks}

    def tell(self, now: float, node: int = 0, **facts: str) -> Effects:
        columns = {name: Column.of([value]) for name, value in facts.items()}
        return self.engine.step(now, [Told(np.array([node]), columns, "agent", now)])

    def see(self, now: float, look: Look, **facts: list[str]) -> Effects:
        return self.engine.step(now, [Seen(look.id, {name: Column.of(value) for name, value in facts.items()})])

    def settle(self) -> None:
        """Everything is seen: nothing is in flight."""
        self.see(1.0, self.looks["bmc"], power=["on", "on"])
        self.see(1.0, self.looks["node"], os=["up", "up"], image=["a", "a"])

    def fact(self, variable: str, node: int = 0) -> str:
        column = self.engine.table.columns[variable]
        return column.words[column.fact[node]]

    def source(self, variable: str, node: int = 0) -> str:
        column = self.engine.table.columns[variable]
        return column.sources[column.source[node]]


def test_a_report_is_a_fact_with_its_source_and_nobody_looks() -> None:
    site = Site()
    site.settle()
    effects = site.tell(2.0, os="up", image="b")
    assert (site.fact("image"), site.source("image")) == ("b", "agent")
    assert [(change.variable, change.new, change.source) for change in effects.changes] == [("image", "b", "agent")]
    assert not [look for look in effects.looks if look.driver == "node"]


def test_a_look_in_flight_does_not_overwrite_what_was_told_since() -> None:
    site = Site()
    site.tell(2.0, os="up", image="b")
    effects = site.see(3.0, site.looks["node"], os=["down", "up"], image=["a", "a"])
    assert (site.fact("os"), site.fact("image")) == ("up", "b")
    assert (site.fact("os", 1), site.fact("image", 1)) == ("up", "a"), "nobody told of the other one"
    assert not effects.looks, "what was told is as good as a look"


def test_who_was_told_of_is_looked_at_again_when_its_turn_comes() -> None:
    site = Site()
    site.settle()
    site.tell(20.0, os="up", image="a")
    looked: dict[int, float] = {}
    for now in np.arange(21.0, 21.0 + INTERVAL):
        for look in site.engine.step(float(now)).looks:
            if look.driver == "node":
                looked |= {int(node): float(now) for node in look.nodes}
    assert looked[1] <= 1.0 + INTERVAL + 1
    assert 20.0 + 0.8 * INTERVAL <= looked[0] <= 20.0 + INTERVAL + 1


def test_a_look_that_somebody_asked_for_since_is_made() -> None:
    site = Site()
    site.settle()
    site.engine.facts.schedule_look(np.array([0]), ("node",), 2.5)
    told = Told(np.array([0]), {"os": Column.of(["up"]), "image": Column.of(["a"])}, "agent", 2.0)
    assert [look.driver for look in site.engine.step(3.0, [told]).looks] == ["node"]


def test_a_part_of_what_a_driver_sees_has_the_rest_looked_at_anew() -> None:
    site = Site()
    site.tell(2.0, image="b")
    effects = site.see(3.0, site.looks["node"], os=["down", "down"], image=["a", "a"])
    assert (site.fact("image"), site.fact("os"), site.fact("os", 1)) == ("b", "unknown", "down")
    assert [look.nodes.tolist() for look in effects.looks if look.driver == "node"] == [[0]]


def test_what_is_told_proves_other_facts_as_what_is_seen_does() -> None:
    site = Site()
    site.tell(2.0, os="up", image="a")
    assert (site.fact("power"), site.source("power")) == ("on", "implied by os")
    site.see(3.0, site.looks["bmc"], power=["on", "on"])
    assert (site.fact("power"), site.source("power")) == ("on", "bmc")


def test_what_is_told_of_nodes_that_others_lead_is_left_to_them() -> None:
    site = Site()
    site.settle()
    site.engine.lead(0, 0, 2.0)
    effects = site.tell(3.0, os="up", image="b")
    assert site.fact("image") == "a"
    assert not effects.changes and not effects.looks


def _begun(site: Site) -> Act:
    site.settle()
    site.engine.set_goal("image", np.array([0]), [("b",)], np.array([0]))
    (act,) = site.engine.step(2.0).acts
    return act


def test_what_is_told_while_a_driver_is_at_work_is_looked_at_when_it_is_done() -> None:
    """One could not tell whether it was so before the act or after it."""
    site = Site()
    act = _begun(site)
    assert not site.tell(3.0, os="up", image="b").looks
    assert site.fact("image") == "a"
    effects = site.engine.step(4.0, [Done(act.generation, Outcomes.all(Outcome.DONE, 1))])
    assert [look.nodes.tolist() for look in effects.looks if look.driver == "node"] == [[0]]
    assert not effects.settled


def test_what_is_told_ends_an_act_that_waits_to_show() -> None:
    site = Site()
    act = _begun(site)
    (look,) = site.engine.step(4.0, [Done(act.generation, Outcomes.all(Outcome.DONE, 1))]).looks
    effects = site.tell(5.0, os="up", image="b")
    assert effects.settled == [act.generation]
    assert [change.cause for change in effects.changes] == ["load"]
    site.see(6.0, look, os=["up"], image=["a"])
    assert site.fact("image") == "b", "the look saw the world before"


def test_what_was_told_before_an_act_ended_does_not_end_it() -> None:
    site = Site()
    act = _begun(site)
    told = Told(np.array([0]), {"os": Column.of(["up"]), "image": Column.of(["b"])}, "agent", 3.5)
    effects = site.engine.step(4.0, [Done(act.generation, Outcomes.all(Outcome.DONE, 1)), told])
    assert not effects.settled
    assert [look.driver for look in effects.looks] == ["node"]


def test_what_is_told_of_an_earlier_time_than_was_seen_since_is_not_believed_and_is_looked_at() -> None:
    site = Site()
    site.settle()
    late = Told(np.array([0]), {"power": Column.of(["off"])}, "bmc event", -0.5)
    effects = site.engine.step(2.0, [late])
    assert (site.fact("power"), site.source("power")) == ("on", "bmc")
    assert [look.driver for look in effects.looks] == ["bmc"]


def test_of_two_tellings_in_the_wrong_order_the_later_one_counts() -> None:
    site = Site()
    site.settle()
    site.engine.step(4.0, [Told(np.array([0]), {"power": Column.of(["on"])}, "bmc event", 3.0)])
    site.engine.step(4.5, [Told(np.array([0]), {"power": Column.of(["off"])}, "bmc event", 2.5)])
    assert site.fact("power") == "on"
