"""The whole way: a kernel panics on a serial console, an IPMI BMC carries it, an event comes out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from strata.hardware.bmc.ipmi.bmc import IpmiBmc
from strata.hardware.bmc.ipmi.client import IpmiClient
from strata.hardware.bmc.ipmi.session import IpmiSettings
from strata.hardware.bmc.ipmi.store import IpmiStore
from strata.hardware.bmc.redfish.endpoint import Credentials
from strata.hardware.consoles.capture import CaptureSettings, ConsoleCapture
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.panic import PanicWatch
from strata.hardware.events.records import HardwareEvent
from support.fake_ipmi_bmc import PASSWORD, USER, FakeIpmiBmc


@pytest.mark.slow
async def test_a_panic_on_a_serial_console_becomes_an_event_with_a_dump(tmp_path: Path) -> None:
    bmc = FakeIpmiBmc()
    events: list[HardwareEvent] = []
    came = asyncio.Event()

    def sink(new: Sequence[HardwareEvent]) -> None:
        events.extend(new)
        came.set()

    client = IpmiClient(lambda _: Credentials(USER, PASSWORD), settings=IpmiSettings(timeout=5.0))
    store = IpmiStore(client)
    log = ConsoleLog(tmp_path)
    await log.start()
    watch = PanicWatch(log, sink, settle=1.0)
    capture = ConsoleCapture(
        log,
        lambda address: IpmiBmc(client, store, address),
        lambda: {"n1": bmc.address},
        settings=CaptureSettings(retry=0.05),
    )
    await capture.start()
    try:
        await asyncio.to_thread(bmc.until, sol=True)
        text = "[ 9.1] booting\r\n[ 9.2] \x1b[31mKernel panic - not syncing: VFS\x1b[0m\r\n[ 9.3] CPU: 0\r\n"
        await asyncio.to_thread(bmc.tell, say=text)
        async with asyncio.timeout(60):
            await came.wait()
        [event] = events
        assert (event.key, event.node, event.source) == ("console/panic", "n1", "console")
        dump = await log.dump("n1", event.fields["dump"].rpartition(":")[2])
        assert [line.text for line in dump] == [
            "[ 9.1] booting",
            "[ 9.2] Kernel panic - not syncing: VFS",
            "[ 9.3] CPU: 0",
        ]
    finally:
        await capture.stop()
        await watch.close()
        await log.stop()
        assert not bmc.state["sol"]
        await client.close()
        bmc.close()
