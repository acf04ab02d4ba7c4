"""What computes and what connects in a machine: GPUs, other accelerators, InfiniBand, Slingshot. Found, not configured.

One detector for everybody. The agent tells what it finds, and checks it; whoever needs it elsewhere runs this as a
program, which prints JSON: `python3 -m strata.agent.host.accelerators --root /`. It reads the tree below a root: sysfs,
procfs and the linker's cache; and asks NVIDIA's library where the root is this machine's own. A driver's files are
looked up each time and never copied, so that they belong to the driver that runs.

A rule file (`etc/strata/accelerators.json`) names accelerators that nobody here knows: a list of
`{"make": "tpu", "kind": "tpu", "pci": ["1ae0:0063"], "name": "TPU v4", "devices": ["/dev/accel{index}"],
"with": ["/dev/vfio/vfio"], "libraries": ["libtpu.so"], "variable": "TPU_VISIBLE_CHIPS"}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from ..files import load_json, read_number, read_text
from ..paths import Paths
from . import nvml
from .libraries import of_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Entry = dict[str, Any]

RULES = "etc/strata/accelerators.json"
_MOST = 64
_MOST_RULES = 32
_MAKES = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_COMPUTES = ("0x0302", "0x12")
"""Classes of PCI devices that compute, whoever made them: 3D controllers and processing accelerators."""
_SHOWS = ("0x0300", "0x0380")
"""Display controllers: those of the makes above compute too, unless they are a processor's own."""
_WITH = {
    "nvidia": ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
    "amd": ("/dev/kfd",),
    "infiniband": ("/dev/infiniband/rdma_cm",),
}
"""Devices that go with each one of a make."""
# fmt: off
_LIBRARIES = {
    "nvidia": (
        "libcuda.so", "libcudadebugger.so", "libnvcuvid.so", "libnvidia-allocator.so", "libnvidia-cfg.so",
        "libnvidia-encode.so", "libnvidia-gpucomp.so", "libnvidia-ml.so", "libnvidia-nvvm.so", "libnvidia-opencl.so",
        "libnvidia-opticalflow.so", "libnvidia-ptxjitcompiler.so",
    ),
    "cxi": ("libcxi.so",),
}
# fmt: on
"""Libraries that must be those of the running driver. The others' talk to their drivers by interfaces that stay."""
_PROGRAMS = {"nvidia": ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")}
_FOLDERS = ("usr/bin", "usr/local/nvidia/bin", "usr/local/bin")


class Detector:
    """Looks at one machine. `library`: NVIDIA's, as `nvml.load` gives it."""

    def __init__(self, paths: Paths, library: Any = None) -> None:
        self._paths = paths
        self._nvml = nvml.Nvml(library)
        self._rules = _rules(paths)

    def accelerators(self) -> list[Entry]:
        """Each accelerator: address, make, name, id, memory, devices; in the order in which their drivers count."""
        cards = self._nvml.cards()
        found: list[Entry] = []
        counts: dict[str, int] = {}
        for device in sorted(self._paths.sys("bus/pci/devices").glob("*")):
            vendor, model = read_text(device / "vendor", 16), read_text(device / "device", 16)
            pci = f"{vendor[2:]}:{model[2:]}"
            rule = next((rule for rule in self._rules if pci in (rule.get("pci") or ())), None)
            make = str(rule["make"]) if rule else _make(device, vendor)
            if make is None:
                continue
            entry: Entry = {"address": device.name, "vendor": vendor, "device": model, "make": make}
            entry["kind"] = str(rule.get("kind") or "accelerator") if rule else "gpu" if make else "accelerator"
            entry["index"] = counts[make] = counts.get(make, -1) + 1
            node = read_number(device / "numa_node")
            if node is not None and node >= 0:
                entry["numa"] = node
            if rule:
                entry |= self._ruled(rule, entry["index"])
            elif make == "nvidia":
                entry |= self._nvidia(device.name, cards.get(device.name, {}))
            elif make in ("amd", "intel"):
                entry |= self._rendering(device)
            found.append({name: value for name, value in entry.items() if value not in ("", None)})
        return found[:_MOST]

    def fabric(self) -> list[Entry]:
        """Each InfiniBand and Slingshot adapter: its devices, its ports and how fast they are."""
        found = []
        for adapter in sorted(self._paths.sys("class/infiniband").glob("*")):
            verbs = sorted((adapter / "device/infiniband_verbs").glob("uverbs*"))
            found.append(
                {
                    "kind": "infiniband",
                    "name": adapter.name,
                    "address": _address(adapter / "device"),
                    "model": read_text(adapter / "board_id", 64) or read_text(adapter / "hca_type", 64),
                    "firmware": read_text(adapter / "fw_ver", 64),
                    "guid": read_text(adapter / "node_guid", 32),
                    "devices": self._there(f"/dev/infiniband/{verb.name}" for verb in verbs),
                    "ports": [_port(port) for port in sorted((adapter / "ports").glob("[0-9]*"))],
                }
            )
        for adapter in sorted(self._paths.sys("class/cxi").glob("cxi*")):
            port = adapter / "device/port"
            speed = "".join(c for c in read_text(port / "speed", 32) if c.isdigit())
            found.append(
                {
                    "kind": "cxi",
                    "name": adapter.name,
                    "address": _address(adapter / "device"),
                    "firmware": read_text(adapter / "device/fru/firmware_version", 64),
                    "devices": self._there([f"/dev/{adapter.name}"]),
                    "ports": [
                        {"port": 1, "state": read_text(port / "link", 32).upper(), "gbit_s": int(speed[-6:] or 0)}
                    ],
                }
            )
        return found[:_MOST]

    def support(self, makes: Iterable[str]) -> dict[str, Entry]:
        """What goes with every device of a make: more devices, and the libraries and programs of its driver."""
        found = {}
        for make in sorted(set(makes)):
            rule = next((one for one in self._rules if one["make"] == make), {})
            version = self._version(make)
            libraries = tuple(str(name) for name in rule.get("libraries") or _LIBRARIES.get(make, ()))
            found[make] = {
                "driver": version,
                "devices": self._there(rule.get("with") or _WITH.get(make, ())),
                "libraries": of_driver(self._paths.root, libraries, version) if libraries else [],
                "programs": [path for name in _PROGRAMS.get(make, ()) for path in self._program(name)],
                "variable": str(rule.get("variable") or ""),
            }
        return found

    def problems(self) -> dict[str, list[str]]:
        """What is wrong with each accelerator, by its address; only those where something is."""
        told = self._nvml.problems()
        found = {}
        for one in self.accelerators():
            device = self._paths.sys(f"bus/pci/devices/{one['address']}")
            found[one["address"]] = [*_on_the_bus(device), *told.get(one["address"], ()), *_rendering_wrong(device)]
        return {name: wrong for name, wrong in found.items() if wrong}

    def fabric_problems(self) -> dict[str, list[str]]:
        """What is wrong with each adapter, by its name; only those where something is. A port without a cable is not:
        nobody knows whether there should be one."""
        found = {}
        for one in self.fabric():
            wrong = _on_the_bus(self._paths.sys(f"bus/pci/devices/{one['address']}")) if one["address"] else []
            for port in one["ports"]:
                if port["state"] in ("INIT", "ARMED"):
                    wrong.append(f"port {port['port']} is {port['state']}: no subnet manager has brought it up")
            found[one["name"]] = wrong
        return {name: wrong for name, wrong in found.items() if wrong}

    def all(self) -> Entry:
        """All of the above."""
        accelerators, fabric = self.accelerators(), self.fabric()
        makes = [one["make"] for one in accelerators if "make" in one] + [one["kind"] for one in fabric]
        return {
            "accelerators": accelerators,
            "fabric": fabric,
            "support": self.support(makes),
            "problems": {**self.problems(), **self.fabric_problems()},
        }

    def _ruled(self, rule: Entry, index: int) -> Entry:
        devices = [str(path).replace("{index}", str(index)) for path in rule.get("devices") or ()]
        return {"name": str(rule.get("name") or "")[:96], "devices": self._there(devices)}

    def _nvidia(self, address: str, card: Entry) -> Entry:
        said = {}
        for line in read_text(self._paths.proc(f"driver/nvidia/gpus/{address}/information"), 4096).splitlines():
            name, _, value = line.partition(":")
            said[name.strip()] = value.strip()
        minor = card.get("minor", said.get("Device Minor", ""))
        return {
            "name": card.get("name") or said.get("Model", "")[:96],
            "id": card.get("id") or said.get("GPU UUID", "")[:96].replace("?", ""),
            "memory_bytes": card.get("memory_bytes"),
            "devices": self._there([f"/dev/nvidia{minor}"]) if str(minor).isdigit() else [],
        }

    def _rendering(self, device: Path) -> Entry:
        """AMD's and Intel's, as their kernel drivers show them."""
        nodes = sorted((device / "drm").glob("renderD*")) + sorted((device / "drm").glob("card*"))
        memory = read_number(device / "mem_info_vram_total")
        for card in (device / "drm").glob("card*"):
            memory = memory or read_number(card / "lmem_total_bytes")
        serial = read_text(device / "unique_id", 64)
        return {
            "name": read_text(device / "product_name", 96),
            "id": f"GPU-{serial}" if serial else "",
            "memory_bytes": memory,
            "devices": self._there(f"/dev/dri/{node.name}" for node in nodes),
        }

    def _version(self, make: str) -> str:
        module = {"nvidia": "nvidia", "amd": "amdgpu", "intel": "xe", "infiniband": "mlx5_core", "cxi": "cxi_ss1"}
        version = read_text(self._paths.sys(f"module/{module.get(make, make)}/version"), 64)
        if make == "nvidia" and not version:
            words = read_text(self._paths.proc("driver/nvidia/version"), 512).split()
            version = next((word for word in words if word[:1].isdigit() and "." in word), "")
        return version

    def _there(self, devices: Iterable[object]) -> list[str]:
        return [path for path in map(str, devices) if (self._paths.root / path.lstrip("/")).exists()]

    def _program(self, name: str) -> list[str]:
        for folder in _FOLDERS:
            if (self._paths.root / folder / name).exists():
                return [f"/{folder}/{name}"]
        return []


def _make(device: Path, vendor: str) -> str | None:
    """Whose accelerator a PCI device is: empty, of somebody unknown; None: it is no accelerator."""
    kind = read_text(device / "class", 16)
    if kind.startswith(_COMPUTES):
        return _MAKES.get(vendor, "")
    make = _MAKES.get(vendor)
    built_in = make != "nvidia" and device.name.split(":")[1:2] == ["00"]  # what a processor shows pictures by
    return make if kind.startswith(_SHOWS) and not built_in else None


def _address(link: Path) -> str:
    return link.readlink().name if link.is_symlink() else ""


def _port(port: Path) -> Entry:
    speed = read_text(port / "rate", 64).split()
    return {
        "port": int(port.name),
        "state": read_text(port / "state", 32).partition(":")[2].strip(),
        "gbit_s": int(float(speed[0])) if speed and speed[0].replace(".", "").isdigit() else 0,
        "layer": read_text(port / "link_layer", 32),
    }


def _on_the_bus(device: Path) -> list[str]:
    wrong = []
    try:
        with (device / "config").open("rb") as source:
            if source.read(2) == b"\xff\xff":
                return ["has fallen off the bus"]
    except OSError:
        pass  # a stand-in has none
    now, most = (read_number(device / f"{which}_link_width") for which in ("current", "max"))
    if now is not None and most is not None and 0 < now < most:
        wrong.append(f"has {now} of {most} lanes")
    return wrong


def _rendering_wrong(device: Path) -> list[str]:
    wrong = []
    for counts in sorted((device / "ras").glob("*_err_count")):
        said = dict(line.split(": ", 1) for line in read_text(counts, 512).splitlines() if ": " in line)
        lost = said.get("ue", "0").strip()
        if lost.isdigit() and int(lost):
            wrong.append(f"{lost} uncorrectable errors ({counts.name.removesuffix('_err_count')})")
    for slowed in sorted((device / "drm").glob("card*/gt/gt*/throttle_reason_status")):
        reasons = [
            path.name.removeprefix("throttle_reason_")
            for path in sorted(slowed.parent.glob("throttle_reason_*"))
            if path != slowed and read_number(path)
        ]
        if read_number(slowed):
            wrong.append(f"is slowed down: {', '.join(reasons) or 'no reason given'}")
    return wrong


def _rules(paths: Paths) -> list[Entry]:
    told = load_json(paths.root / RULES)
    rules = told if isinstance(told, list) else []
    return [rule for rule in rules[:_MOST_RULES] if isinstance(rule, dict) and str(rule.get("make") or "").isalnum()]


def main(words: list[str]) -> int:
    """Print what is found below `--root` (this machine, unless given)."""
    if words and (len(words) != 2 or words[0] != "--root"):
        sys.stderr.write("usage: accelerators [--root FOLDER]\n")
        return 2
    paths = Paths(root=Path(words[1]) if words else Path("/"))
    json.dump(Detector(paths, nvml.load(paths)).all(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
