"""kill -9 in the middle of everything: what was acknowledged stands, nothing is done twice, all converge."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import TracebackType

import pytest
from system_support import QUICK, Controller, Simulator, World, eventually, nodeset

from strata.core.errors import OutcomeUnknown, StrataError
from support.etcd_cluster import EtcdCluster

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODES = 1000
SPARE = 200
"""Nodes beside these that nothing is wanted of at first: each desire that is set meanwhile is on one of its own."""
KILLS = 20
SCALE = 0.2
"""A boot takes some 10 s: much longer than a controller is away, so that what it began is still under way."""


class Wishes(threading.Thread):
    """Sets one desire after the other while controllers come and go, and remembers what was acknowledged."""

    def __init__(self, names: list[str], *controllers: Controller) -> None:
        super().__init__(name="wishes")
        self._names = names
        self._clients = [controller.connect() for controller in controllers]
        self._ended = threading.Event()
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []

    def run(self) -> None:
        for turn, name in enumerate(self._names):
            while not self._ended.wait(0.05):
                client = self._clients[turn % len(self._clients)]
                try:
                    client.request("POST", "/v1/desires", body={"select": name, "set": {"power": ["on"]}, "unset": []})
                except OutcomeUnknown:
                    self.unknown.append(name)
                except StrataError:
                    continue  # nothing was done: nobody there, or the store away
                else:
                    self.acknowledged.append(name)
                break

    def __enter__(self) -> Wishes:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self.join(60)
        for client in self._clients:
            client.close()


def storm(controllers: list[Controller], between: Callable[[int], None] = lambda _: None) -> None:
    """kill -9 a controller and start it again at once, many times. Halfway the second half of the nodes is wanted."""
    chance = random.Random(7)
    for turn in range(KILLS):
        time.sleep(chance.uniform(0.5, 1.5))
        between(turn)
        if turn == KILLS // 2:  # however quick it was with the first half: it is in the middle of this one
            eventually("all are wanted", lambda: controllers[0].want_ready(nodeset(1, NODES)) is None, 60)
        controller = chance.choice(controllers)
        controller.kill()
        controller.start()
        controller.wait_ready()


def check(controller: Controller, simulator: Simulator, wishes: Wishes) -> None:
    """Everything that was acknowledged stands and is so, each by one effect."""
    assert len(wishes.acknowledged) > KILLS
    standing = {item["name"] for item in controller.client.pages("/v1/nodes", {"select": "want:power=on"})}
    assert set(wishes.acknowledged) <= standing
    assert standing <= {*nodes(), *wishes.acknowledged, *wishes.unknown}
    controller.wait_all("ready", len(standing), 900.0)
    simulator.check_once(**{"power-on": len(standing)}, others=NODES)
    verdict = controller.client.get("/v1/audit/verify")
    assert verdict["ok"], verdict


def nodes(first: int = 1, last: int = NODES) -> list[str]:
    """Names of simulated nodes."""
    return [f"n{number:05d}" for number in range(first, last + 1)]


@pytest.mark.timeout(1800)
def test_kill_9_twenty_times_during_the_convergence_of_1000_nodes(world: World) -> None:
    simulator = world.simulator(NODES + SPARE, SCALE)
    controller = world.controller("c1", simulator, timeouts=QUICK)
    controller.start()
    controller.wait_ready()
    controller.want_ready(nodeset(1, NODES // 2))
    with Wishes(nodes(NODES + 1, NODES + SPARE), controller) as wishes:
        storm([controller])
    check(controller, simulator, wishes)


@pytest.mark.timeout(1800)
def test_kill_9_twenty_times_of_two_controllers_on_etcd_which_loses_a_member(
    world: World, etcd_cluster: EtcdCluster
) -> None:
    simulator = world.simulator(NODES + SPARE, SCALE)
    url = etcd_cluster.url("crashes")
    controllers = [world.controller(name, simulator, timeouts=QUICK, store=url) for name in ("c1", "c2")]
    for controller in controllers:
        controller.start()
        controller.wait_ready()

    def lose_a_member(turn: int) -> None:
        if turn == KILLS // 3:
            etcd_cluster.kill(etcd_cluster.leader())

    try:
        controllers[0].want_ready(nodeset(1, NODES // 2))
        with Wishes(nodes(NODES + 1, NODES + SPARE), *controllers) as wishes:
            storm(controllers, lose_a_member)
        check(controllers[1], simulator, wishes)
    finally:
        etcd_cluster.heal()
