"""Whether a BMC lets somebody in: yes, no, and no answer are three different things."""

from __future__ import annotations

import pytest

from strata.core.errors import DeviceError
from strata.hardware.bmc.dialects import dialects
from strata.hardware.bmc.redfish.client import Credentials
from strata.hardware.credentials.rotation import login_checks
from strata.virtual.bmc.server import BmcServer
from support.fake_ipmi_bmc import PASSWORD, USER, FakeIpmiBmc

CHECKS = login_checks(True, dialects(lambda _: Credentials("", "")))


async def test_redfish_says_yes_or_no(server: BmcServer) -> None:
    address = f"{server.address}/bmc/n1"
    assert await CHECKS["http"](address, Credentials("root", "simulated"))
    assert not await CHECKS["http"](address, Credentials("root", "wrong"))
    assert not await CHECKS["http"](address, Credentials("nobody", "simulated"))


async def test_silence_is_neither() -> None:
    with pytest.raises(DeviceError):
        await CHECKS["http"]("http://127.0.0.1:9", Credentials("root", "simulated"))


@pytest.mark.slow
async def test_ipmi_says_yes_or_no() -> None:
    bmc = FakeIpmiBmc(suites=[3, 17])
    try:
        assert await CHECKS["ipmi"](bmc.address, Credentials(USER, PASSWORD))
        assert not await CHECKS["ipmi"](bmc.address, Credentials(USER, "wrong"))
    finally:
        bmc.close()
