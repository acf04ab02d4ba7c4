"""Every read over services whose resources were spoilt at random: an answer or an error of ours, nothing else."""

from __future__ import annotations

import random
import traceback

import pytest
from aiohttp import web

from strata.core.errors import StrataError
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.odd_bmc import ROOT, OddBmc

READS = ("identity", "power", "boot", "media", "readings", "log", "power_limits", "bios", "firmware", "settings")
JUNK = (
    None, True, 0, -1, 1e308, "", "x" * 5000, "NaN", "\x1b[2J<script>", "2026-99-99", [], {}, [None], [[]], [{}],
    {"@odata.id": 5}, {"@odata.id": "/redfish/v1/../../etc"}, {"@odata.id": "//elsewhere.invalid/redfish/v1"},
)  # fmt: skip


def spoil(value: object, luck: random.Random, rate: float) -> object:
    """A copy with some values exchanged for junk."""
    if luck.random() < rate:
        return luck.choice(JUNK)
    if isinstance(value, dict):
        return {key: spoil(item, luck, rate) for key, item in value.items()}
    if isinstance(value, list):
        return [spoil(item, luck, rate) for item in value]
    return value


async def recorded() -> dict[str, object]:
    """Everything that a simulated BMC tells."""
    server = BmcServer(SimNodes(1, names=["n1"], timing=Timing(scale=0)))
    await server.start()
    server.bmc("n1").log("warning", "hot", "Sensor.1.0.Hot")
    found: dict[str, object] = {}
    async with RedfishClient(Credentials("root", "simulated")) as client:
        waiting = [ROOT]
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            try:
                found[path] = body = dict((await client.get(server.url("n1"), path)).body)
            except StrataError:
                continue
            if path == ROOT:
                body.pop("ProtocolFeaturesSupported")  # the recording does not expand
            waiting += links(body)
    await server.stop()
    return found


def links(value: object) -> list[str]:
    if isinstance(value, list):
        return [link for item in value for link in links(item)]
    if not isinstance(value, dict):
        return []
    own = value.get("@odata.id")
    here = [own.partition("#")[0].rstrip("/")] if isinstance(own, str) and len(value) == 1 else []
    return here + [link for item in value.values() for link in links(item)]


@pytest.mark.slow
async def test_whatever_is_spoilt_nothing_but_an_error_of_ours_comes_out():
    whole = await recorded()
    answered = 0
    for seed in range(60):
        luck = random.Random(seed)
        rate = luck.choice((0.002, 0.01, 0.05, 0.2))
        spoilt = {path: spoil(body, luck, rate) for path, body in whole.items()}
        async with OddBmc({}) as bmc, RedfishClient(Credentials("root", "x")) as client:
            for path, body in spoilt.items():
                bmc.answers[("GET", path)] = lambda _, body=body: web.json_response(body)
            controller = RedfishBmc(client, bmc.address)
            for name in (*READS, "listening"):
                try:
                    await (
                        RedfishSubscriptions(client).listening(bmc.address)
                        if name == "listening"
                        else getattr(controller, name)()
                    )
                    answered += 1
                except StrataError as wrong:
                    assert len(str(wrong)) < 2000
                except Exception:
                    pytest.fail(f"seed {seed}, {name}: {traceback.format_exc(limit=-3)}")
    assert answered > 300, answered
