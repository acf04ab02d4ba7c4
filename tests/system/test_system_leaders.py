"""Several controllers over one store, and a controller that starts again: who acts, and that nobody acts twice."""

from __future__ import annotations

import signal
import time

import pytest
from system_support import QUICK, Controller, Simulator, World, eventually

from support.etcd_cluster import EtcdCluster

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODES = 1000
STOPPED_FOR = 60.0
TAKEOVER = 15.0
AT_ONCE = 6.0
"""Seconds, less than any lease has left: who waited for one to end would not make it."""
PATIENT = {**QUICK, "power-on": STOPPED_FOR + 2}
"""The driver does not give up what it was about to do while it stands still: it is the fence that must stop it."""


def acting(controller: Controller) -> bool:
    """Whether a driver is at work on nodes: their intents are written, and not all requests are sent."""
    queue = controller.status()["queue"]
    return bool(queue["acting"] and queue["driver_running"])


@pytest.mark.timeout(600)
def test_a_leader_that_stood_still_for_60_seconds_is_replaced_within_15_and_fenced(
    world: World, etcd_cluster: EtcdCluster
) -> None:
    simulator = world.simulator(NODES, 0.1)
    stopped, other = (
        world.controller(name, simulator, timeouts=PATIENT, store=etcd_cluster.url("stopped")) for name in ("c1", "c2")
    )
    for controller in (stopped, other):
        controller.start()
        controller.wait_ready()
    eventually("they share", lambda: other.leads() == {"c1": 8, "c2": 8}, 60)
    eventually("it has looked", lambda: not stopped.status()["queue"]["driver_running"], 60)
    stopped.want_ready()
    eventually("it is in the middle of acting", lambda: acting(stopped), 60, every=0.005)
    stopped.signal(signal.SIGSTOP)
    since = time.monotonic()
    eventually("the other leads all", lambda: other.leads() == {"c2": 16}, TAKEOVER)
    eventually("a minute is over", lambda: time.monotonic() - since > STOPPED_FOR, STOPPED_FOR + 1)
    stopped.signal(signal.SIGCONT)
    eventually("it shares again", lambda: stopped.leads() == other.leads() == {"c1": 8, "c2": 8}, 60)
    for controller in (stopped, other):
        controller.wait_all("ready", NODES, 180)
    assert stopped.held_back() > 0
    simulator.check_once(others=NODES)


def seen_since(controller: Controller, moment: float) -> bool:
    """Whether every fact of every node was looked at after ``moment``."""
    nodes = controller.client.pages("/v1/nodes", {"fields": "name,facts"})
    return all((fact["seen"] or 0) > moment for node in nodes for fact in node["facts"].values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_controller_that_starts_again_looks_at_everything_and_disturbs_nothing(world: World, how: str) -> None:
    simulator = world.simulator(256, 0.02)
    controller = world.controller("c1", simulator)
    controller.start()
    controller.wait_ready()
    controller.want_ready()
    controller.wait_all("ready", 256, 60)
    simulator.check_once(others=256)
    if how == "killed":
        controller.kill()
    else:
        controller.stop()
    began = time.time()
    controller.start()
    controller.wait_ready()
    eventually("all was looked at", lambda: seen_since(controller, began), 60)
    controller.wait_all("ready", 256, 60)
    simulator.check_once(others=256)
    assert simulator.effects()["jobs_lost"] == 0


@pytest.mark.timeout(600)
def test_a_controller_that_is_stopped_hands_over_at_once(world: World, etcd_cluster: EtcdCluster) -> None:
    simulator: Simulator = world.simulator(100, 0.05)
    first, second = (world.controller(name, simulator, store=etcd_cluster.url("handover")) for name in ("c1", "c2"))
    for controller in (first, second):
        controller.start()
        controller.wait_ready()
    first.want_ready()
    eventually("they share", lambda: second.leads() == {"c1": 8, "c2": 8}, 60)
    first.stop()
    eventually("the other leads all", lambda: second.leads() == {"c2": 16}, AT_ONCE)
    # A boot that the first may have sent, or not, is waited for in all its time rather than sent twice.
    second.wait_all("ready", 100, 400)
    simulator.check_once(others=100)
