"""The BMC against sushy-tools' emulator, a service that somebody else wrote."""

from __future__ import annotations

import time

import pytest
from aiohttp import web

from strata.core.errors import NotOffered
from strata.hardware.bmc.protocol import Boot, ServiceSettings
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from support.sushy_emulator import sushy_emulator

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture
async def image():
    """The URI of something to put into a drive."""
    app = web.Application()
    app.router.add_get("/disk.iso", _image)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/disk.iso"
    await runner.cleanup()


async def _image(_: web.Request) -> web.Response:
    return web.Response(body=b"an image", content_type="application/octet-stream")


async def wait_for_power(controller: RedfishBmc, wanted: str) -> None:
    """The emulator takes up to 11 s."""
    deadline = time.monotonic() + 60
    while await controller.power() != wanted:
        assert time.monotonic() < deadline


async def test_power_boot_media_and_readings_and_what_it_lacks_is_said(tmp_path, image):
    async with sushy_emulator(tmp_path) as address, RedfishClient(Credentials("root", "unused")) as client:
        controller = RedfishBmc(client, address)
        assert (await controller.identity()).vendor == "Sushy Emulator"
        assert await controller.power() == "off"
        await controller.set_power("on")
        await controller.set_boot(Boot(target="pxe", once=False))
        assert (await controller.boot()).target == "pxe"
        await controller.insert_media(image)
        assert (await controller.media())[0].image.endswith("disk.iso")
        await controller.insert_media("")
        assert not any(drive.image for drive in await controller.media())
        await controller.identify(True)
        readings = await controller.readings()
        assert {reading.kind for reading in readings} >= {"temperature", "fan"}
        with pytest.raises(NotOffered, match="setup"):
            await controller.set_boot(Boot(target="setup"))
        for lacking in (
            controller.bios(),
            controller.log(),
            controller.clear_log(),
            controller.firmware(),
            controller.settings(),
            controller.set_settings(ServiceSettings(ntp=("ntp.example",))),
            controller.set_password("root", "other"),
        ):
            with pytest.raises(NotOffered):
                await lacking
        await wait_for_power(controller, "on")
        await controller.set_power("off")
        await wait_for_power(controller, "off")
