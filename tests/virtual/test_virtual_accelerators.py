"""What the accelerators of simulated nodes draw, and their caps."""

from __future__ import annotations

import numpy as np
import pytest

from strata.virtual.fleet.electricity import Electricity
from strata.virtual.fleet.faults import Timing

GPU_NODE, PLAIN_NODE = "n00040", "n00001"
METRICS = "Systems/1/Processors/GPU2/EnvironmentMetrics"
EVERYBODY = np.arange(5, dtype=np.int64)
YES, NO = np.ones(5, dtype=np.bool_), np.zeros(5, dtype=np.bool_)


@pytest.fixture
def five() -> Electricity:
    """The last of five nodes has accelerators."""
    return Electricity(5, 0, Timing(), 4)


def test_accelerators_draw_a_part_of_what_their_node_draws(five):
    for busy in (YES, NO):
        whole, gpus = five.watts(EVERYBODY, YES, busy), five.gpu_watts(EVERYBODY, YES, busy)
        assert np.isnan(gpus[:4]).all(), "the others have none"
        assert gpus[4].sum() == pytest.approx(0.6 * whole[4])
    assert five.gpu_watts(EVERYBODY, NO, NO)[4].tolist() == [0.0] * 4, "off"


def test_a_cap_of_an_accelerator_lowers_what_its_node_draws(five):
    before = five.watts(EVERYBODY, YES, YES)
    one = five.gpu_watts(EVERYBODY, YES, YES)[4, 1]
    five.set_gpu_cap(4, 1, 60.0)
    assert five.gpu_watts(EVERYBODY, YES, YES)[4].tolist() == pytest.approx([one, 60.0, one, one])
    assert (before - five.watts(EVERYBODY, YES, YES)).tolist() == pytest.approx([0, 0, 0, 0, one - 60.0])
    five.set_gpu_cap(4, 1, None)
    assert five.watts(EVERYBODY, YES, YES).tolist() == before.tolist()


def test_a_cap_of_the_node_slows_its_accelerators_down_with_it(five):
    five.set_gpu_cap(4, 0, 60.0)
    five.set_cap(EVERYBODY, 300.0)
    assert five.watts(EVERYBODY, YES, YES)[4] == 300.0
    gpus = five.gpu_watts(EVERYBODY, YES, YES)[4]
    assert gpus[0] < 60.0 and gpus.sum() < 300.0 * 0.6


def test_one_without_power_draws_nothing(five):
    five.fed[4] = False
    assert five.gpu_watts(EVERYBODY, YES, YES)[4].tolist() == [0.0] * 4


async def test_an_accelerator_has_metrics_and_a_cap_of_its_own(ask, room):
    room.nodes.put(room.nodes.all, now=0.0, power="on")
    gpu = (await ask(GPU_NODE, "GET", "Systems/1/Processors/GPU2"))[1]
    assert gpu["EnvironmentMetrics"]["@odata.id"].endswith(METRICS)
    assert (await ask(GPU_NODE, "PATCH", METRICS, {"PowerLimitWatts": {"SetPoint": 75}}))[0] == 204
    told = (await ask(GPU_NODE, "GET", METRICS))[1]
    assert told["PowerWatts"]["Reading"] > 0
    assert told["PowerLimitWatts"] == {
        "SetPoint": 75, "AllowableMin": 50, "AllowableMax": 500, "ControlMode": "Automatic",
    }  # fmt: skip
    other = (await ask(GPU_NODE, "GET", METRICS.replace("GPU2", "GPU1")))[1]
    assert other["PowerLimitWatts"]["ControlMode"] == "Disabled"
    assert (await ask(GPU_NODE, "PATCH", METRICS, {"PowerLimitWatts": {"ControlMode": "Disabled"}}))[0] == 204
    assert (await ask(GPU_NODE, "GET", METRICS))[1]["PowerLimitWatts"]["SetPoint"] is None


@pytest.mark.parametrize("limit", [{"SetPoint": 49}, {"SetPoint": 501}, {"SetPoint": "much"}, {}, {"Set": 1}])
async def test_a_cap_that_it_does_not_take_is_refused(ask, limit):
    assert (await ask(GPU_NODE, "PATCH", METRICS, {"PowerLimitWatts": limit}))[0] == 400


@pytest.mark.parametrize(
    ("node", "path"), [(PLAIN_NODE, METRICS), (GPU_NODE, METRICS.replace("GPU2", "CPU1")), (GPU_NODE, f"{METRICS}/1")]
)
async def test_nobody_else_has_them(ask, node, path):
    for method, body in (("GET", None), ("PATCH", {"PowerLimitWatts": {"SetPoint": 75}})):
        assert (await ask(node, method, path, body))[0] == 404
