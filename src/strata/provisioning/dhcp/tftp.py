"""TFTP: hands out iPXE and nothing else. The work is done by tftpd-hpa, locked into a directory that holds no more."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from strata.core.errors import Unavailable
from strata.fleet.child_process import Child
from strata.provisioning.dhcp.boot_files import ARM_FILE, BIOS_FILE, EFI_FILE

PORT = 69
IPXE = Path("/usr/lib/ipxe")
"""Where Debian keeps iPXE."""
OWN = "ipxe"
"""Folder in the state directory where a site puts iPXE binaries of its own: for machines that Debian has none for, or
instead of Debian's."""
_NEEDED = (BIOS_FILE, EFI_FILE)
_OFFERED = (*_NEEDED, ARM_FILE)
_SOCKETS = Path("/proc/net/udp")
_BLOCK = 1468
"""The largest block that fits an Ethernet frame: larger ones come in pieces that firmware loses."""


def ipxe_folders(state: Path) -> tuple[Path, ...]:
    """Where iPXE is looked for, the site's own first."""
    return (state / OWN, IPXE)


def find_ipxe(name: str, folders: Sequence[Path]) -> Path | None:
    """An iPXE binary in the first of the folders that has it."""
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def fill(root: Path, folders: Sequence[Path] = (IPXE,)) -> None:
    """Make ``root`` hold the iPXE binaries of the folders, and nothing else. Blocking: for a thread."""
    found = {name: find_ipxe(name, folders) for name in _OFFERED}
    missing = [name for name in _NEEDED if found[name] is None]
    if missing:
        raise Unavailable(f"there is no {missing[0]}", where=str(folders[-1]), hint="apt-get install ipxe")
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    root.chmod(0o755)
    for name, source in found.items():
        if source is not None:
            shutil.copyfile(source, root / name)
            (root / name).chmod(0o444)


def tftp(root: Path, address: str, port: int = PORT) -> Child:
    """A TFTP server on one address, still to be started."""
    argv = ["in.tftpd", "--foreground", "--secure", "--ipv4", "--user", "nobody", "--blocksize", str(_BLOCK)]

    async def is_up() -> bool:
        return is_served(address, port)

    return Child(
        f"tftp on {address}",
        [*argv, "--address", f"{address}:{port}", str(root)],
        is_up,
        package="tftpd-hpa",
    )


def require_free(address: str, port: int = PORT) -> None:
    """Raise ``Unavailable`` if somebody else serves TFTP there."""
    if is_served(address, port):
        raise Unavailable(
            "TFTP cannot be served: the port is taken", where=f"{address}:{port}", hint="stop what listens there"
        )


def is_served(address: str, port: int = PORT) -> bool:
    """Whether somebody listens there. Looked up, not tried: a trial would take the port from who is about to."""
    number = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    names = {f"{number:08X}:{port:04X}", f"00000000:{port:04X}"}
    return any(line.split()[1] in names for line in _SOCKETS.read_text(encoding="ascii").splitlines()[1:])
