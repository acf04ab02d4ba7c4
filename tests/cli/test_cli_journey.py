"""How ``strata up`` tells of nodes on their way."""

from __future__ import annotations

import io
from typing import Any

import pytest

from strata.cli.output import Output
from strata.cli.up import journey


def facts(**values: str) -> dict[str, Any]:
    return {name: {"value": value} for name, value in values.items()}


@pytest.mark.parametrize(
    ("known", "state", "boot", "reached"),
    [
        (facts(power="off"), "converging", {}, "off"),
        (facts(power="on", os="down"), "converging", {}, "power"),
        (facts(power="on", os="down"), "converging", {"script": 9.0, "fragment": None, "redeemed": None}, "script"),
        (facts(power="on", os="down"), "converging", {"script": 9.0, "fragment": 10.0, "redeemed": None}, "kernel"),
        (facts(power="on", os="down"), "converging", {"script": 9.0, "fragment": 1.0, "redeemed": 2.0}, "script"),
        (facts(power="on", os="down"), "converging", {"script": 1.0, "fragment": 1.5, "redeemed": 2.0}, "power"),
        (facts(power="on", os="up", image="absent"), "converging", {}, "minOS"),
        (facts(power="on", os="up", image="demo", personality="idle"), "converging", {}, "image"),
        (facts(power="on", os="up", image="demo", personality="active"), "converging", {}, "image"),
        (facts(power="on", os="up", image="demo", personality="active"), "ready", {}, "ready"),
    ],
)
def test_a_node_is_as_far_as_its_facts_and_its_boot_say(
    known: dict[str, Any], state: str, boot: dict[str, Any], reached: str
) -> None:
    assert journey.STAGES[journey.stage(known, state, boot)] == reached


def test_a_node_that_got_its_identity_is_where_it_was_until_its_agent_speaks() -> None:
    boot = {"script": 1.0, "fragment": 1.5, "redeemed": 2.0}
    for before, now in (("kernel", "kernel"), ("power", "power"), ("minOS", "power"), ("ready", "power")):
        found = journey.stage(facts(power="on", os="down"), "converging", boot, journey.STAGES.index(before))
        assert journey.STAGES[found] == now


def test_what_several_nodes_passed_meanwhile_is_told_in_the_order_in_which_it_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journey.time, "time", lambda: 200.0)
    said = io.StringIO()
    with journey.Journey(Output(stdout=io.StringIO(), stderr=said), ["n1", "n2"], 100.0) as followed:
        followed.update("n1", 4, "", {1: 104.0, 4: 130.4})  # when it came here is on record, too
        followed.update("n2", 2, "", {1: 103.0, 2: 120.0})
        followed.show()
        followed.show()
    assert [" ".join(line.split()) for line in said.getvalue().splitlines()] == [
        "3s n2 has power",
        "4s n1 has power",
        "20s n2 asks what to boot +17s",
        "30s n1 runs minOS +26s",
    ]


def test_every_step_of_every_node_is_a_line_with_the_time_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(journey.time, "time", lambda: now[0])
    said = io.StringIO()
    with journey.Journey(Output(stdout=io.StringIO(), stderr=said), ["n1"], 100.0) as followed:
        for at, place in ((101.0, 1), (111.0, 2), (112.0, 2), (131.0, 4), (140.0, 1), (150.0, 2)):
            now[0] = at
            followed.update("n1", place, "", {})
            followed.show()
    assert [" ".join(line.split()) for line in said.getvalue().splitlines()] == [
        "1s n1 has power",
        "11s n1 asks what to boot +10s",
        "31s n1 runs minOS +20s",
        "40s n1 has power",
        "50s n1 asks what to boot +10s",
    ]


def test_stages_that_nobody_saw_are_told_from_what_is_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journey.time, "time", lambda: 160.0)
    history = [
        {"variable": "image", "new": "demo", "time": 150.0},
        {"variable": "image", "new": "absent", "time": 131.0},
        {"variable": "os", "new": "up", "time": 130.0},
        {"variable": "power", "new": "on", "time": 105.0},
    ]
    boot = {"script": 111.0, "fragment": 112.0, "redeemed": 129.0}
    said = io.StringIO()
    with journey.Journey(Output(stdout=io.StringIO(), stderr=said), ["n1", "old"], 100.0) as followed:
        assert followed.skipped("n1", 6)
        followed.update("n1", 6, "", journey.passed(history, boot))
        assert not followed.skipped("n1", 6)
        followed.update("old", 6, "", journey.passed([], {"script": 11.0, "fragment": 12.0}))  # before we began
        followed.show()
    assert [" ".join(line.split()) for line in said.getvalue().splitlines()] == [
        "5s n1 has power",
        "11s n1 asks what to boot +6s",
        "12s n1 starts its kernel +1s",
        "30s n1 runs minOS +18s",
        "50s n1 has its image +20s",
        "1m n1 is ready +10s",
        "1m old is ready",
    ]


class Nodes:
    """Answers as the service does: each look shows the next of what it was given."""

    def __init__(self, *looks: list[dict[str, Any]]) -> None:
        self._looks = list(looks)

    def get(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
        if path != "/v1/nodes":
            return {"items": []}
        return {"items": self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]}


def a_node(name: str, state: str, wanted: str, **known: str) -> dict[str, Any]:
    desires = {"power": {"values": [wanted]}}
    return {"name": name, "state": state, "facts": facts(**known), "desires": desires, "doing": None, "fault": ""}


def test_nodes_that_the_workload_manager_has_switched_off_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journey.time, "sleep", lambda _: None)
    said = io.StringIO()
    up = a_node("n1", "ready", "on", power="on", os="up", image="slurm", personality="active")
    going = a_node("n2", "converging", "off", power="on", os="up", image="slurm", personality="active")
    client: Any = Nodes([up, going], [up, a_node("n2", "off", "off", power="off")])
    assert journey.follow(client, Output(stdout=io.StringIO(), stderr=said), ["n1", "n2"], began=0.0, timeout=60)
    assert said.getvalue().splitlines()[-1].startswith("n2: off, as wanted")


def test_a_node_that_is_off_and_wanted_on_is_waited_for() -> None:
    client: Any = Nodes([a_node("n1", "unreachable", "on", power="off")])
    out = Output(stdout=io.StringIO(), stderr=io.StringIO())
    assert not journey.follow(client, out, ["n1"], began=0.0, timeout=0)
