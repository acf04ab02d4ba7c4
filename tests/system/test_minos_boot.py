"""The minimal OS on an emulated machine: it boots, brings up what the agent needs, and keeps the agent running."""

import json
from pathlib import Path

import pytest

from strata.provisioning.minos.tree import File, regular
from support.minos import Machine, initrd_with

pytestmark = [pytest.mark.slow, pytest.mark.server]

MAC = "52:54:00:12:34:56"
BOOT = {
    "node": "n0001",
    "generation": 1,
    "controllers": ["https://127.0.0.1:9"],
    "ca": "",
    "token": "",
    "net": {"interfaces": [{"mac": MAC, "address": "10.77.0.11/24", "gateway": "10.77.0.1", "dns": ["10.77.0.1"]}]},
}

PROBE = """#!/bin/busybox sh
# Instead of the agent at first: says what it finds, fails once, and then gives way to the agent.
if [ ! -e /run/probed ]; then
    touch /run/probed
    echo "PROBE name $(hostname)"
    echo "PROBE address $(ip -4 -o addr show dev eth0 | awk '{print $4}')"
    echo "PROBE route $(ip route | awk '/default/ {print $3}')"
    echo "PROBE resolver $(cat /etc/resolv.conf)"
    echo "PROBE modules $(lsmod | awk '{print $1}' | sort | tr '\\n' ' ')"
    echo "PROBE mounts $(awk '{print $2 "=" $3}' /proc/mounts | tr '\\n' ' ')"
    mkdir -p /run/box/rootfs/bin /run/box/rootfs/lib
    cp /bin/busybox /run/box/rootfs/bin/sh
    cp -a /lib64 /run/box/rootfs
    cp -a /lib/*-linux-gnu /run/box/rootfs/lib
    cd /run/box
    crun spec
    sed -i 's/"terminal": true/"terminal": false/' config.json
    sed -i 's/"sh"/"sh", "-c", "echo PROBE container pid $$ of $(echo \\/*)"/' config.json
    crun run probe </dev/null
    touch -d @1900000000 /etc/strata/boot.json
    . /etc/strata/minos.sh
    set_clock
    echo "PROBE clock $(date +%Y)"
    touch -d @0 /etc/strata/boot.json
    set_clock
    echo "PROBE clock again $(date +%Y)"
    exit 1
fi
echo "PROBE again"
exec /usr/bin/python3 -I -S -B -u -m strata_agent
"""


def test_it_boots_to_an_agent_that_says_what_it_waits_for(tmp_path: Path):
    extra = {"etc/strata/boot.json": File(0o100600, json.dumps(BOOT).encode())}
    with Machine(initrd_with(extra, tmp_path / "initrd")) as machine:
        machine.wait_for("Linux version")
        assert "not enrolled yet" in machine.wait_for("strata-agent")


def test_network_modules_mounts_and_containers_are_ready_and_a_failed_agent_is_started_again(tmp_path: Path):
    extra = {
        "etc/strata/boot.json": File(0o100600, json.dumps(BOOT).encode()),
        "etc/strata/agent": regular(PROBE.encode(), executable=True),
    }
    with Machine(initrd_with(extra, tmp_path / "initrd"), "-rtc", "base=2001-01-01") as machine:
        assert machine.wait_for("PROBE name").endswith("n0001")
        assert machine.wait_for("PROBE address").endswith(" 10.77.0.11/24")
        assert machine.wait_for("PROBE route").endswith(" 10.77.0.1")
        assert machine.wait_for("PROBE resolver").endswith("nameserver 10.77.0.1")
        loaded = machine.wait_for("PROBE modules").split()
        assert {"overlay", "squashfs", "loop", "nbd", "virtio_net", "virtio_rng"} <= set(loaded)
        mounts = machine.wait_for("PROBE mounts").split()
        assert {"/proc=proc", "/sys=sysfs", "/dev=devtmpfs", "/run=tmpfs", "/sys/fs/cgroup=cgroup2"} <= set(mounts)
        assert "PROBE container pid 1 of /bin" in machine.wait_for("PROBE container")
        assert machine.wait_for("PROBE clock").endswith("2030")
        assert machine.wait_for("PROBE clock again").endswith("2030")
        machine.wait_for("PROBE again")
        machine.type("echo prompt-$((40 + 2))\n")
        machine.wait_for("strata-agent")
        assert not any("prompt-42" in line for line in machine.console)


def test_a_rescue_shell_is_there_if_the_command_line_asks_for_it_and_a_panic_ends_in_a_restart(tmp_path: Path):
    with Machine(initrd_with({}, tmp_path / "initrd"), append="strata.rescue") as machine:
        machine.wait_for("rescue shell")
        machine.type("echo prompt-$((40 + 2))\n")
        machine.wait_for("prompt-42")
        machine.type("echo c > /proc/sysrq-trigger\n")
        machine.wait_for("Kernel panic")
        machine.ended()
