"""Kernel messages as a node sends them: by Linux's own netconsole, on an emulated machine with the minimal OS."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from console_support import read

from docs.docs_support import taken_from_pages
from strata.hardware.consoles.kernel_messages import KernelMessages
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.consoles.writer import ConsoleLimits
from strata.provisioning.minos.tree import File, regular
from support.minos import Machine, built, initrd_with, make

pytestmark = [pytest.mark.slow, pytest.mark.server]

MAC = "52:54:00:00:00:06"
AGENT = """#!/bin/busybox sh
# Instead of the agent: what an administrator types on the node.
{command} || echo "TYPED in vain"
i=0
while [ $i -lt 40 ]; do echo "<4>heard of $i" > /dev/kmsg; i=$((i + 1)); sleep 0.5; done
"""


async def test_a_node_sends_its_kernels_messages_as_the_page_says(tmp_path: Path) -> None:
    (command,) = taken_from_pages(
        "tests/hardware/test_console_netconsole.py::test_a_node_sends_its_kernels_messages_as_the_page_says"
    )
    log = ConsoleLog(tmp_path / "log", limits=ConsoleLimits(every=0.001))
    await log.start()
    messages = KernelMessages(log, {"127.0.0.1": "n0006"}.get, netconsole="127.0.0.1:0")
    await messages.start()
    (receiver,) = messages.receivers
    port = receiver.transport.get_extra_info("sockname")[1]
    built()  # has the packages fetched
    make(tmp_path / "minos", tmp_path / "signing", modules=["netconsole"])
    interface = {"mac": MAC, "address": "10.0.0.6/24", "gateway": "10.0.0.1", "dns": []}
    boot = {"node": "n0006", "generation": 1, "controllers": ["https://10.0.0.1:9"], "ca": "", "token": ""}
    extra = {
        "etc/strata/boot.json": File(0o100600, json.dumps({**boot, "net": {"interfaces": [interface]}}).encode()),
        "etc/strata/agent": regular(AGENT.format(command=command.replace("6666", str(port))).encode(), executable=True),
    }
    initrd = initrd_with(extra, tmp_path / "initrd", tmp_path / "minos")
    # 10.0.0.1 is this machine to it.
    network = ("-netdev", "user,id=n1,net=10.0.0.0/24,host=10.0.0.1,dhcpstart=10.0.0.15,dns=10.0.0.3")
    with Machine(initrd, *network, "-device", f"virtio-net-pci,netdev=n1,romfile=,mac={MAC}") as machine:
        await asyncio.to_thread(machine.wait_for, "heard of 0")
        lines = await read(log, "n0006", 1)
    await messages.stop()
    await log.stop()
    assert lines[0][0] == "netconsole", lines
    assert not any("in vain" in line for line in machine.console)
