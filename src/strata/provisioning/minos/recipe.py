"""What goes into the minimal OS, for each architecture."""

from __future__ import annotations

import lzma
from typing import NamedTuple

from strata.core.errors import BadRequest
from strata.provisioning.minos import elf


class Recipe(NamedTuple):
    """One architecture: its names in Debian and in ELF, and its usual kernel."""

    arch: str
    debian: str
    triplet: str
    machine: int
    kernel: str
    image: str
    """How the kernel's file begins in /boot."""
    filters: tuple[int, ...] = ()
    """Of xz, before it compresses programs; the kernel must know them."""


RECIPES = {
    "x86_64": Recipe(
        *("x86_64", "amd64", "x86_64-linux-gnu", elf.X86_64, "linux-image-cloud-amd64", "vmlinuz"),
        filters=(lzma.FILTER_X86,),
    ),
    "aarch64": Recipe("aarch64", "arm64", "aarch64-linux-gnu", elf.AARCH64, "linux-image-cloud-arm64", "vmlinuz"),
}

PACKAGES = ("busybox", "crun", "kexec-tools", "libpython3-stdlib", "openssl", "python3-minimal")
"""Where programs come from. Their libraries are found by their dependencies."""

PROGRAMS = ("bin/busybox", "sbin/vmcore-dmesg", "usr/bin/crun", "usr/bin/openssl")
"""Of these, Python beside them; without the leading ``usr/`` in some releases."""

STAND_INS = ("libsystemd.so.0",)
"""Libraries that a program is linked with but has no use for here: crun would ask systemd for control groups."""

SETTINGS = ("etc/ssl/openssl.cnf",)
"""Files that programs cannot do without."""


def recipe(arch: str) -> Recipe:
    """The recipe for an architecture, as ``uname -m`` names it."""
    found = RECIPES.get(arch)
    if found is None:
        raise BadRequest(f"no recipe for architecture {arch[:40]!r}", hint=f"there are {', '.join(sorted(RECIPES))}")
    return found
