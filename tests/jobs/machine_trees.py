"""Trees like those of machines with accelerators: one recorded, others as the kernel's documentation has them."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"


def put(root: Path, files: dict[str, str | int]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))


def devices(root: Path, *paths: str) -> None:
    """Stand-ins: plain files where the kernel has device nodes."""
    put(root, {path.lstrip("/"): "" for path in paths})


def library(root: Path, path: str, *, alien: bool = False) -> None:
    """The head of a library, for this machine's processor or for another's."""
    with Path(sys.executable).open("rb") as own:
        head = bytearray(own.read(20))
    if alien:
        head[18:20] = b"\xb7\x00" if head[18:20] != b"\xb7\x00" else b"\x3e\x00"
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bytes(head))


def link(root: Path, path: str, target: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def cache(root: Path, listed: list[tuple[str, str]]) -> None:
    """The dynamic linker's cache, as `ldconfig` writes it."""
    strings, offsets = b"", []
    begin = 48 + 24 * len(listed)
    for words in listed:
        for word in words:
            offsets.append(begin + len(strings))
            strings += word.encode() + b"\0"
    entries = b"".join(
        struct.pack("<iIIIQ", 0x0303, offsets[2 * at], offsets[2 * at + 1], 0, 0) for at in range(len(listed))
    )
    head = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(listed), len(strings)) + bytes(20)
    place = root / "etc/ld.so.cache"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(head + entries + strings)


def h200(root: Path) -> Path:
    """A virtual machine with one NVIDIA H200, as it was. Of its libraries only the names were recorded."""
    told = json.loads((RECORDED / "h200.json").read_text())
    put(root, told["files"])
    devices(root, *told["devices"])
    version = told["files"]["sys/module/nvidia/version"].strip()
    listed = []
    for name, path in told["libraries"]:
        listed.append((name, path))
        if (root / path.lstrip("/")).is_symlink():
            continue
        real = f"{path.partition('.so')[0]}.so.{version}"
        library(root, real)
        if real != path:
            link(root, path, Path(real).name)
    cache(root, listed)
    return root


def mi250(root: Path) -> Path:
    """A node with two AMD GPUs, an InfiniBand and a Slingshot adapter, and the display of its BMC."""
    for number, address in enumerate(("0000:c1:00.0", "0000:c6:00.0")):
        pci = f"sys/bus/pci/devices/{address}"
        put(root, {f"{pci}/class": "0x038000", f"{pci}/vendor": "0x1002", f"{pci}/device": "0x740c"})
        put(root, {f"{pci}/unique_id": f"5b1f{number}", f"{pci}/product_name": "AMD INSTINCT MI250 (MCM) OAM AC MBA"})
        put(root, {f"{pci}/mem_info_vram_total": 68702699520, f"{pci}/numa_node": number})
        put(root, {f"{pci}/ras/umc_err_count": "ue: 0\nce: 3\n"})
        (root / pci / f"drm/renderD{128 + number}").mkdir(parents=True)
        (root / pci / f"drm/card{number}").mkdir(parents=True)
        devices(root, f"/dev/dri/renderD{128 + number}", f"/dev/dri/card{number}")
    devices(root, "/dev/kfd", "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", "/dev/cxi0")
    bmc = "sys/bus/pci/devices/0000:03:00.0"
    put(root, {f"{bmc}/class": "0x030000", f"{bmc}/vendor": "0x1a03", f"{bmc}/device": "0x2000"})
    hca = "sys/bus/pci/devices/0000:41:00.0"
    put(root, {f"{hca}/class": "0x020700", f"{hca}/vendor": "0x15b3"})
    (root / hca / "infiniband_verbs/uverbs0").mkdir(parents=True)
    ib = "sys/class/infiniband/mlx5_0"
    put(root, {f"{ib}/board_id": "MT_0000000223", f"{ib}/fw_ver": "20.31.1014", f"{ib}/ports/1/state": "4: ACTIVE"})
    put(root, {f"{ib}/ports/1/rate": "200 Gb/sec (4X HDR)", f"{ib}/ports/1/link_layer": "InfiniBand"})
    link(root, f"{ib}/device", "../../../bus/pci/devices/0000:41:00.0")
    cxi = "sys/bus/pci/devices/0000:81:00.0"
    put(root, {f"{cxi}/class": "0x020000", f"{cxi}/port/link": "up", f"{cxi}/port/speed": "BS_200G"})
    (root / "sys/class/cxi/cxi0").mkdir(parents=True)
    link(root, "sys/class/cxi/cxi0/device", "../../../bus/pci/devices/0000:81:00.0")
    put(root, {"sys/module/cxi_ss1/version": "1.0.0"})
    return root
