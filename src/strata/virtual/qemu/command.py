"""The command line of one QEMU process. Pure: says what to start, starts nothing."""

from __future__ import annotations

from pathlib import Path

from strata.core.host.process import FIRST_FD
from strata.virtual.qemu.description import MachineDescription, guest_mark

PROGRAM, PACKAGE = "qemu-system-x86_64", "qemu-system-x86"
FIRMWARE = Path("/usr/share/OVMF")
CODE, VARIABLES = FIRMWARE / "OVMF_CODE_4M.fd", FIRMWARE / "OVMF_VARS_4M.fd"
FIRMWARE_PACKAGE = "ovmf"

CONSOLE_LOG, MEDIUM = "console.log", "medium.iso"
"""Names in a node's folder."""

FIRST, NETWORK_AT, CD_AT = 0, 1, 2
"""Places in the order of boot devices. What is to be tried first by way of exception goes to the first."""
_RETRY_MS = 5000
"""After a round without anything to boot, BIOS firmware begins again; it would stop for ever."""
_TRANSLATED_MIB = 128
"""Memory for translated code, besides the node's own."""


def store(home: Path, *, http: bool) -> Path:
    """Where UEFI firmware keeps its variables: two places, because it would put what it once left out last for ever."""
    return home / ("firmware.http.variables" if http else "firmware.variables")


def command(
    program: str, node: MachineDescription, chassis: str, home: Path, *, cd_first: bool, http: bool, medium: bool
) -> list[str]:
    """Everything that QEMU is told.

    It gets two listening sockets, for control and for the serial line. ``http``: UEFI firmware leaves PXE out, and so
    boots over HTTP. ``medium``: there is one in the CD drive.
    """
    network = f"virtio-net-pci,id=net0,netdev=net,mac={node.mac},bootindex={NETWORK_AT}"
    drive = f"ide-cd,id=cd0,bootindex={FIRST if cd_first else CD_AT}"
    told = [
        program, "-nodefaults", "-no-user-config", "-display", "none",
        "-name", f"{guest_mark(chassis, node.name)},process={node.name}",
        "-S",  # it stands still until its line is connected: what firmware prints first would be lost
        # Never KVM: where it is half there, as in nested machines, it hangs.
        "-accel", f"tcg,tb-size={_TRANSLATED_MIB}", "-machine", "pc,graphics=off", "-cpu", "max",
        "-smp", "1", "-m", str(node.memory),
        "-uuid", node.uuid,
        "-smbios", f"type=1,manufacturer=Strata,product=Virtual node,serial={node.serial},uuid={node.uuid}",
        "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-chardev", f"socket,id=control,fd={FIRST_FD},server=on,wait=off",
        "-mon", "chardev=control,mode=control",
        "-chardev", f"socket,id=line,fd={FIRST_FD + 1},server=on,wait=off,logappend=on,"
                    f"logfile={_escaped(home / CONSOLE_LOG)}",
        "-serial", "chardev:line",
        "-netdev", f"tap,id=net,ifname={node.tap},script=no,downscript=no",
        "-device", "virtio-rng-pci",
        "-boot", f"reboot-timeout={_RETRY_MS}",
    ]  # fmt: skip
    if medium:
        file = _escaped(home / MEDIUM)
        told += ["-drive", f"if=none,id=medium,media=cdrom,format=raw,readonly=on,file={file}"]
        drive += ",drive=medium"
    if node.firmware == "uefi":
        code = f"if=pflash,unit=0,format=raw,readonly=on,file={CODE}"
        told += ["-drive", code, "-drive", f"if=pflash,unit=1,format=raw,file={_escaped(store(home, http=http))}"]
        network += ",romfile="  # the firmware has a driver and PXE of its own
        for name in ("IPv4PXESupport", "IPv6PXESupport") if http else ():
            told += ["-fw_cfg", f"name=opt/org.tianocore/{name},string=n"]
    return [*told, "-device", network, "-device", drive]


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")
