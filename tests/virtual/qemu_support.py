"""Around a chassis of QEMU nodes: this test inside its namespace, a medium that proves it was booted, what is left."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from strata.core.host.process import with_argument
from strata.virtual.qemu.description import guest_mark, link_device, namespace_name

_NEW_NETWORK = 0x40000000
GREETING = "booted from the medium"

# The first sector of a CD, which the BIOS loads and runs: writes the greeting to the serial port, then goes on.
_BOOT = bytes.fromhex(
    "fa e80000 5e 83c600"  # cli; call next; next: pop si; add si, greeting - next (filled in)
    "baf803"  # mov dx, 0x3f8
    "2eac 84c0 7403 ee ebf7"  # more: cs lodsb; test al, al; jz done; out dx, al; jmp more
)
RESETS = bytes.fromhex("b0fe e664 f4 ebfd")
"""Then resets the machine by way of the keyboard controller: mov al, 0xfe; out 0x64, al; hlt."""
OBEYS = bytes.fromhex(
    "ba0206 b80001 ef"  # mov dx, 0x602; mov ax, 0x100; out dx, ax: let the power button be noticed
    "ba0006 ed f6c401 74fa"  # mov dx, 0x600; again: in ax, dx; test ah, 1; jz again
    "ba0406 b80020 ef f4 ebfd"  # mov dx, 0x604; mov ax, 0x2000; out dx, ax: soft off; hlt
)
"""Or waits for the power button and switches the machine off, as an operating system does."""


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and the sockets that it makes, in the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        assert libc.setns(there, _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        assert libc.setns(home, _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
        os.close(home)
        os.close(there)


def make_medium(folder: Path, then: bytes) -> Path:
    """An ISO image that greets on the serial line and goes on with ``then``."""
    tree = folder / then.hex()
    tree.mkdir()
    code = bytearray(_BOOT + then)
    at = code.index(b"\x5e")
    code[at + 3] = len(code) - at
    (tree / "boot.bin").write_bytes(bytes(code) + f"{GREETING}\r\n\0".encode().ljust(2048, b"\0"))
    image = folder / f"{then.hex()}.iso"
    command = ["xorriso", "-as", "mkisofs", "-quiet", "-o", image, "-b", "boot.bin", "-no-emul-boot"]
    subprocess.run([*command, "-boot-load-size", "4", tree], check=True, capture_output=True, timeout=60)
    return image


async def until(true: Callable[[], bool], within: float = 150.0) -> None:
    """Return when it is so."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.05)


def printed(log: Path) -> str:
    """What a node's console said so far."""
    try:
        return log.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def remains(chassis: str) -> list[str]:
    """Whatever is on this machine of a chassis."""
    name = namespace_name(chassis)
    processes = [f"process {process.pid}" for process in with_argument(guest_mark(chassis))]
    places = (Path("/run/netns", name), Path("/sys/class/net", link_device(chassis)))
    return processes + [str(place) for place in places if place.exists()]
