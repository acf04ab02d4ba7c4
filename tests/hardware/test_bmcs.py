"""BMCs by address: the scheme says which protocol, and the silent and the locked are known."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from strata.core.driver import Batch
from strata.core.errors import DeviceError, OutcomeUnknown
from strata.core.state import Outcome
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.dialects import Dialect
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.model import LAYER

POWER_ON = next(mutation for mutation in LAYER.mutations if mutation.name == "power-on")


class Other:
    """A BMC that speaks something else, or nothing at all."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.silent = False
        self.asked = 0
        self.state = "off"

    async def power(self) -> str | None:
        self.asked += 1
        if self.silent:
            raise DeviceError("no answer", node=self.address)
        return self.state

    async def set_power(self, action: str, **_: object) -> None:
        self.asked += 1
        if self.silent:
            raise OutcomeUnknown("no answer", where=self.address)
        self.state = action


class Others:
    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.closed = False

    def dialect(self) -> Dialect:
        return Dialect(open=Other, inventory=None, accepts=None, forget=self.forgotten.append, close=self.close)  # type: ignore[arg-type]

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
async def controllers(client: RedfishClient, others: Others) -> AsyncIterator[Bmcs]:
    found = Bmcs(client, {"other": others.dialect()})
    yield found
    await found.close()


async def test_the_scheme_says_who_answers_and_the_same_address_is_the_same_bmc(server, controllers):
    redfish = controllers.open(server.url("n1"))
    assert isinstance(redfish, RedfishBmc)
    assert controllers.open(server.url("n1")) is redfish
    assert isinstance(controllers.open("other://h"), Other)
    for wrong in ("", "nonsense", "ftp://h", "http://u:p@h", "http://[::1"):
        with pytest.raises(DeviceError, match="address"):
            controllers.open(wrong)


async def test_it_is_known_who_is_silent_and_who_is_locked(server, impatient, controllers, clock):
    address = server.url("n1")
    assert not controllers.silent(address)
    server.nodes.bmc_dead[0] = True
    impatient(0.2, 0.1)
    with pytest.raises(DeviceError):
        await controllers.open(address).power()
    silence = controllers.silence(address)
    assert silence is not None and silence.until > clock.now
    assert controllers.silent(f"{address}/redfish/v1/Systems/1")  # the same BMC
    wrong = Bmcs(RedfishClient(Credentials("root", "guess"), clock=clock))
    for _ in range(2):
        with pytest.raises(DeviceError):
            await wrong.open(server.url("n2")).power()
    assert "refused the password" in wrong.locked(server.url("n2"))
    wrong.unlock(server.url("n2"))
    assert wrong.locked(server.url("n2")) == ""
    await wrong.close()


@pytest.mark.parametrize("address", ["", "ftp://10.0.0.1", "https://10.0.0.*:x", "no address"])
async def test_what_is_no_address_is_not_silent_and_hurts_nobody(controllers, address):
    assert not controllers.silent(address)


async def test_closing_and_unlocking_reach_the_other_protocol(client, others):
    controllers = Bmcs(client, {"other": others.dialect()})
    controllers.unlock("other://h")
    await controllers.close()
    assert others.forgotten == ["other://h"] and others.closed


async def test_the_driver_leaves_the_silent_of_another_protocol_alone_for_a_while(controllers, clock):
    driver = BmcDriver(controllers)
    told = Batch(
        names=["a", "b"],
        uids=np.arange(2),
        bmcs=["other://a", "other://b"],
        epochs=np.ones(2, dtype=np.int64),
        generation=1,
    )
    silent = controllers.open("other://a")
    silent.silent = True  # type: ignore[attr-defined]
    assert (await driver.observe(["power"], told))["power"].values() == ["unknown", "off"]
    await driver.observe(["power"], told)
    assert silent.asked == 1  # type: ignore[attr-defined]
    assert controllers.silence("other://a").why == "no answer"
    outcomes = await driver.act(POWER_ON, told)
    assert outcomes.codes.tolist() == [Outcome.FAILED, Outcome.DONE]
    assert "not tried" in outcomes.reasons[0]
    clock.now += 6
    outcomes = await driver.act(POWER_ON, told)
    assert outcomes.codes.tolist() == [Outcome.UNKNOWN, Outcome.DONE]
    silent.silent = False  # type: ignore[attr-defined]
    clock.now += 60
    assert (await driver.act(POWER_ON, told)).codes.tolist() == [Outcome.DONE] * 2
    assert (await driver.observe(["power"], told))["power"].values() == ["on", "on"]
    await driver.close()
