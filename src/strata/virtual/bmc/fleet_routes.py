"""What the simulator says of the whole fleet at once: for its agents (``/agents/``), for whoever measures its power
(``/fleet/power``), and for tests (``/fleet/effects``)."""

from __future__ import annotations

import msgspec

from strata.core.errors import BadRequest
from strata.virtual.bmc.http import Reply, Request
from strata.virtual.fleet.agents import Gateway
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.fleet.power import encode
from strata.virtual.plant.plant import Plant
from strata.virtual.redfish.bmc import Account


class FleetRoutes:
    """Answers what is not one BMC's."""

    def __init__(self, nodes: SimNodes, plant: Plant | None, account: Account) -> None:
        self._nodes = nodes
        self._plant = plant
        self._account = account
        self._gateway = Gateway(nodes)

    def answer(self, request: Request, now: float) -> Reply:
        """The reply."""
        if request.headers.get("authorization") != self._account.basic:
            return Reply(401, b"who are you?", kind="text/plain")
        if request.path == "/fleet/effects":
            return self._effects(request)
        if request.path == "/fleet/power":
            return self._power(request, now)
        if request.method != "POST":
            return Reply(405, headers=(("Allow", "POST"),))
        try:
            body = self._gateway.answer(request.path.removeprefix("/agents/"), request.body, now)
        except BadRequest as wrong:
            return Reply(400, str(wrong).encode(), kind="text/plain; charset=utf-8")
        return Reply(404) if body is None else Reply(200, body, kind="application/msgpack")

    def _power(self, request: Request, now: float) -> Reply:
        """What every BMC would tell of power, in one reply."""
        if request.method != "GET":
            return Reply(405, headers=(("Allow", "GET"),))
        return Reply(200, encode(self._nodes, now), kind="application/msgpack")

    def _effects(self, request: Request) -> Reply:
        """The nodes' own book: how often each mutation was taken, and what should never be in it."""
        if request.method != "GET":
            return Reply(405, headers=(("Allow", "GET"),))
        nodes = self._nodes
        book: dict[str, object] = {
            "counts": nodes.effects.counts(),
            "twice": nodes.effects.twice(),
            "idle": nodes.effects.idle(),
            "repeated": {nodes.names[node]: taken for node, taken in nodes.effects.repeated().items()},
            "fenced": int(nodes.fences.refused.sum()),
            "jobs_lost": int(nodes.jobs.lost.sum()),
        }
        if self._plant is not None:
            book["plant"] = self._plant.effects
        return Reply(200, msgspec.json.encode(book))
