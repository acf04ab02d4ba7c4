"""What the machine is made of, as its kernel sees it: bounded, and text from devices taken as text only."""

from __future__ import annotations

from ..files import read_number, read_text
from ..paths import Paths
from .accelerators import Detector
from .metrics import meminfo
from .nvml import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 64
_DISKS = ("sd", "vd", "nvme", "hd")


def inventory(paths: Paths) -> dict[str, Any]:
    """Board, processors, memory, network interfaces, disks, accelerators, adapters of fast networks."""
    detector = Detector(paths, load(paths))
    return {
        "dmi": _dmi(paths),
        "cpu": _cpu(paths),
        "memory_bytes": meminfo(paths).get("MemTotal", 0),
        "numa_nodes": len(list(paths.sys("devices/system/node").glob("node[0-9]*"))),
        "nics": _nics(paths),
        "disks": _disks(paths),
        "accelerators": detector.accelerators(),
        "fabric": detector.fabric(),
        "kernel": read_text(paths.proc("sys/kernel/osrelease"), 100),
        "firmware": "uefi" if paths.sys("firmware/efi").is_dir() else "bios",
    }


def _dmi(paths: Paths) -> dict[str, str]:
    names = (
        "sys_vendor",
        "product_name",
        "product_serial",
        "board_vendor",
        "board_name",
        "bios_vendor",
        "bios_version",
    )
    return {name: text for name in names if (text := read_text(paths.sys(f"class/dmi/id/{name}"), 128))}


def _cpu(paths: Paths) -> dict[str, Any]:
    model, sockets, threads = "", set(), 0
    for line in read_text(paths.proc("cpuinfo"), 4 << 20).splitlines():
        name, _, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if name == "processor":
            threads += 1
        elif name == "model name":
            model = value[:100]
        elif name == "physical id":
            sockets.add(value)
    cores = {
        (read_text(cpu / "physical_package_id", 16), read_text(cpu / "core_id", 16))
        for cpu in paths.sys("devices/system/cpu").glob("cpu[0-9]*/topology")
    }
    return {"model": model, "sockets": len(sockets) or 1, "cores": len(cores) or threads, "threads": threads}


def _nics(paths: Paths) -> list[dict[str, Any]]:
    found = []
    for nic in sorted(paths.sys("class/net").glob("*")):
        mac = read_text(nic / "address", 32)
        if not (nic / "device").exists() or not mac:
            continue
        speed = read_number(nic / "speed")
        entry: dict[str, Any] = {"name": nic.name, "mac": mac, "link": read_text(nic / "operstate", 16)}
        if speed is not None and speed > 0:
            entry["mbit_s"] = speed
        driver = nic / "device/driver"
        if driver.is_symlink():
            entry["driver"] = driver.readlink().name
        found.append(entry)
    return found[:_MOST]


def _disks(paths: Paths) -> list[dict[str, Any]]:
    found = []
    for disk in sorted(paths.sys("block").glob("*")):
        sectors = read_number(disk / "size")
        if not disk.name.startswith(_DISKS) or not sectors:
            continue
        model = read_text(disk / "device/model", 64)
        serial = read_text(disk / "device/serial", 64) or read_text(disk / "serial", 64)
        entry = {"name": disk.name, "bytes": sectors * 512, "model": model, "serial": serial}
        found.append({name: value for name, value in entry.items() if value})
    return found[:_MOST]
