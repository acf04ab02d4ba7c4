"""A rollout by the command line, over a real service that is killed in the middle of it."""

from __future__ import annotations

import pytest
from system_support import QUICK, World, eventually, strata

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODES = 12


@pytest.mark.timeout(600)
def test_a_rollout_goes_on_when_its_service_is_killed_and_every_node_is_changed_once(world: World) -> None:
    simulator = world.simulator(NODES, 0.05)
    timeouts = {**QUICK, "switch-image": 18.0, "leave-workload": 18.0}
    controller = world.controller("c1", simulator, timeouts=timeouts)
    controller.start()
    controller.wait_ready()
    controller.want_ready()
    controller.wait_all("ready", NODES, 120.0)
    started = strata(
        controller.state, "rollout", "start", "new", "*", "image=v2", "--waves", "1,3,100%", "--soak", "1s", "--json"
    )
    assert started.code == 0, started
    assert started.json["waves"] == 3
    for wave in (1, 2, 3):

        def begun(wave: int = wave) -> bool:
            return int(controller.client.get("/v1/rollouts/new")["wave"]) >= wave

        eventually(f"wave {wave} begins", begun, 240.0)
        controller.kill()
        controller.start()
        controller.wait_ready()
    ended = strata(controller.state, "rollout", "status", "new", "--wait", "--json", limit=300.0)
    assert ended.code == 0, ended
    assert ended.json["counts"]["ready"] == NODES
    assert [event["author"] for event in ended.json["events"]][:2] == ["local-admin", "rollout:new"]
    book = simulator.effects()
    assert book["twice"] == []
    assert book["counts"]["switch-image"] == NODES
    listed = strata(controller.state, "node", "list", "--folded", "fact:image=v2", "fact:workload=in")
    assert listed.out.strip() == f"n[00001-{NODES:05d}]"
    actions = {record["action"] for record in controller.client.get("/v1/audit")["items"]}
    assert {"rollout.start", "rollout.go-on"} <= actions
