"""Which kernel modules go into the initrd, and the tables by which they are loaded for the hardware that is there.

Modules are carried as they are, not stripped: kernels want their signatures under secure boot.
"""

from __future__ import annotations

import fnmatch
import lzma
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strata.core.errors import NotFound
from strata.provisioning.minos import elf
from strata.provisioning.minos.tree import File, Tree, regular

ALWAYS = ("overlay", "squashfs", "loop", "nbd")
"""What images are mounted with; loaded at every boot."""

BESIDE = (
    *("8021q", "veth", "efi_pstore", "msr", "acpi_cpufreq", "cpufreq_powersave", "cpufreq_ondemand"),
    *("intel_rapl_msr", "intel_rapl_common", "ipmi_si", "ipmi_devintf", "virtio_mmio", "virtio_console"),
)
"""What is of use on any machine, and loaded when something asks for it."""

DRIVERS = (
    *("virtio_pci", "virtio_net", "virtio_blk", "virtio_scsi", "virtio_rng", "virtio_balloon"),
    *("e1000", "e1000e", "igb", "igc", "ixgbe", "i40e", "ice", "tg3", "bnxt_en", "r8169", "mlx5_core"),
    *("nvme", "ahci", "sd_mod", "xhci_pci", "usbhid", "intel_cstate", "tpm_tis", "tpm_crb"),
)
"""For devices that a machine may well have, where nobody said which it has."""

_KINDS = (".ko", ".ko.xz")


class Module(NamedTuple):
    """One module file of a kernel."""

    path: str
    file: File
    aliases: tuple[str, ...]
    needs: tuple[str, ...]


def select(
    files: Mapping[str, File], release: str, extra: Iterable[str] = (), hardware: Iterable[str] | None = None
) -> Tree:
    """The modules to carry, of all ``files`` of the kernel's package, with the tables by which they are loaded.

    ``hardware`` is the modaliases of the machines' devices: drivers of these then, and not the usual ones. One of
    ``extra`` that the kernel does not have is an error; anything else that it lacks, or has built in, is left out.
    """
    root = f"lib/modules/{release}/"
    known = {_name(path): path for path in files if path.startswith(root + "kernel/") and path.endswith(_KINDS)}
    builtin = {_name(line) for line in files[root + "modules.builtin"].data.decode().splitlines()}
    for name in (*ALWAYS, *extra):
        if name.replace("-", "_") not in known.keys() | builtin:
            raise NotFound(
                f"kernel {release} has no module {name[:60]!r}",
                where="minos build",
                hint="another kernel may: --kernel linux-image-amd64",
            )

    def module(name: str) -> Module:
        return _module(known[name].removeprefix(root), files[known[name]])

    if hardware is None:
        drivers: Iterable[str] = DRIVERS
    else:
        devices = set(hardware)
        drivers = [name for name in known if _drives(module(name), devices)]
    chosen: dict[str, Module] = {}
    waiting = [name.replace("-", "_") for name in (*ALWAYS, *BESIDE, *drivers, *extra)]
    while waiting:
        name = waiting.pop()
        if name in known and name not in chosen:
            chosen[name] = module(name)
            waiting += chosen[name].needs
    tree: Tree = {root + module.path: module.file for module in chosen.values()}
    tree[root + "modules.dep"] = regular(_dependencies(chosen).encode())
    tree[root + "modules.alias"] = regular(_aliases(chosen).encode())
    return tree


def _drives(module: Module, devices: set[str]) -> bool:
    return any(fnmatch.fnmatchcase(device, alias) for alias in module.aliases for device in devices)


def _module(path: str, file: File) -> Module:
    data = lzma.decompress(file.data) if path.endswith(".xz") else file.data
    found = elf.read(data, (".modinfo",))
    rows = found.sections.get(".modinfo", b"").split(b"\0") if found else []
    info = [row.decode(errors="replace").partition("=")[::2] for row in rows if row]
    needs = [name for key, value in info if key == "depends" for name in value.split(",") if name]
    # "softdep=pre: a b post: c": what should be there first; the rest would only be loaded for comfort.
    for value in (value for key, value in info if key == "softdep"):
        before = re.search(r"pre:([^:]*?)(?:\s\w+:|$)", value)
        needs += before[1].split() if before else []
    return Module(
        path.removesuffix(".xz"),
        regular(data),
        tuple(value for key, value in info if key == "alias"),
        tuple(name.replace("-", "_") for name in needs),
    )


def _dependencies(modules: Mapping[str, Module]) -> str:
    lines = []
    for name in sorted(modules):
        order: list[str] = []
        _below(name, modules, order, set())
        paths = [modules[one].path for one in reversed(order)]
        lines.append(f"{paths[0]}: {' '.join(paths[1:])}".rstrip() + "\n")
    return "".join(lines)


def _below(name: str, modules: Mapping[str, Module], order: list[str], seen: set[str]) -> None:
    """Append ``name`` after all that it needs."""
    if name in modules and name not in seen:
        seen.add(name)
        for one in modules[name].needs:
            _below(one, modules, order, seen)
        order.append(name)


def _aliases(modules: Mapping[str, Module]) -> str:
    return "".join(f"alias {alias} {name}\n" for name in sorted(modules) for alias in sorted(modules[name].aliases))


def _name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".xz").removesuffix(".ko").replace("-", "_")
