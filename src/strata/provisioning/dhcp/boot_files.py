"""What a machine is told to load, by what it says about itself. Firmware gets iPXE; iPXE gets its script."""

from __future__ import annotations

from enum import StrEnum

from strata.provisioning.dhcp import packet as p

BIOS_FILE = "undionly.kpxe"
"""iPXE on the network driver of a PC's BIOS."""
EFI_FILE = "ipxe.efi"
"""iPXE with drivers of its own for x86-64 UEFI."""
ARM_FILE = "ipxe-arm64.efi"
"""The same for 64-bit ARM."""
FILES = (BIOS_FILE, EFI_FILE, ARM_FILE)
HTTP_CLASS = b"HTTPClient"
PXE_CLASS = b"PXEClient"

# "Load the file that the offer names; do not look for boot servers, do not ask the user" (PXE 2.1, option 43 tag 6).
_PXE_NO_SEARCH = p.option(p.VENDOR, b"\x06\x01\x08\xff")
# iPXE's own "no-pxedhcp": do not wait for a proxy DHCP server.
_IPXE_NO_PROXY = p.option(p.IPXE, b"\xb0\x01\x01")


class Boot(StrEnum):
    """Who asks."""

    SYSTEM = "system"
    """An operating system: it wants an address, no file."""
    IPXE = "ipxe"
    BIOS = "bios"
    EFI = "efi"
    ARM = "arm"
    HTTP_EFI = "http-efi"
    HTTP_ARM = "http-arm"


_TELLING = frozenset((p.USER_CLASS, p.VENDOR_CLASS, p.IPXE))
_PXE = {0: Boot.BIOS, 7: Boot.EFI, 9: Boot.EFI, 11: Boot.ARM}
_HTTP = {16: Boot.HTTP_EFI, 19: Boot.HTTP_ARM}
_TFTP_FILES = {Boot.BIOS: BIOS_FILE, Boot.EFI: EFI_FILE, Boot.ARM: ARM_FILE}
_HTTP_FILES = {Boot.HTTP_EFI: EFI_FILE, Boot.HTTP_ARM: ARM_FILE}


def boot_of(request: p.Request) -> Boot:
    """Who asks, by user class, vendor class and architecture. An architecture that we have no iPXE for is answered
    like an operating system."""
    options = request.options
    if options.keys().isdisjoint(_TELLING):
        return Boot.SYSTEM
    if options.get(p.USER_CLASS, b"").lstrip(b"\x04") == b"iPXE" or p.IPXE in options:
        return Boot.IPXE
    vendor = options.get(p.VENDOR_CLASS, b"")
    number = int.from_bytes(options.get(p.ARCHITECTURE, b"\xff\xff")[:2], "big")
    if vendor.startswith(HTTP_CLASS):
        return _HTTP.get(number, Boot.SYSTEM)
    if vendor.startswith(PXE_CLASS):
        return _PXE.get(number, Boot.SYSTEM)
    return Boot.SYSTEM


def file_for(boot: Boot) -> str:
    """The iPXE binary that a machine is told to load; empty: none."""
    return _TFTP_FILES.get(boot) or _HTTP_FILES.get(boot, "")


def boot_answer(boot: Boot, server: str, port: int, mac: str, node: str = "") -> tuple[bytes, bytes]:
    """The file that the reply names, and the options that go with it. ``node``: of a machine that is known by its
    cable and not by its MAC."""
    base = f"http://{server}:{port}/boot"
    if boot is Boot.IPXE:
        script = f"{base}/script/{node}?mac={mac}" if node else f"{base}/script?mac={mac}"
        return script.encode(), _IPXE_NO_PROXY
    if boot in _TFTP_FILES:
        return _TFTP_FILES[boot].encode(), p.option(p.VENDOR_CLASS, PXE_CLASS) + _PXE_NO_SEARCH
    if boot in _HTTP_FILES:
        url = f"{base}/efi/{_HTTP_FILES[boot]}".encode()
        return url, p.option(p.VENDOR_CLASS, HTTP_CLASS) + p.option(p.BOOT_FILE, url)
    return b"", b""
