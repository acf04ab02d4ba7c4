"""Boot media: one ISO per boot, with kernel, initrd and fragment, for networks that must not carry a token.

A node's BMC fetches it over TLS from an address that nobody can guess, and that is good for as long as the token
inside. GRUB starts it under BIOS and UEFI with one configuration; its images are made once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from strata.core.errors import Unavailable
from strata.provisioning.minos.artefacts import INITRD, KERNEL

ARCHITECTURE = "x86_64"
"""Of the machines that can start from them: GRUB is put on them for no other."""
_NAME = re.compile(r"[A-Za-z0-9_-]{43}\.iso\Z")
_MODULES = (
    "iso9660",
    "linux",
    "normal",
    "search",
    "search_fs_file",
    "serial",
    "terminal",
    "configfile",
    "echo",
    "sleep",
)
_LIMIT = 120.0  # seconds for one run of a tool
_AT_ONCE = 2
"""Media that are made at the same time: each is written to disk whole."""
_BIOS, _UEFI = "bios.img", "uefi.img"
_MARK = ".strata-boot-medium"
_EARLY = f"search --file --set=root /{_MARK}\nset prefix=($root)/boot/grub\n"


class Medium(NamedTuple):
    """A medium that can be fetched."""

    file: str
    """Its name in the folder."""
    node: str
    generation: int
    ends: float


class Media:
    """The media that can be fetched now. ``start``, then ``stop``."""

    def __init__(
        self, folder: Path, *, reader: tuple[int, int] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """``folder`` is emptied at the start. ``reader``: user and group of nginx's workers, if they are not ours."""
        self.folder = folder
        self._reader = reader
        self._clock = clock
        self._media: dict[str, Medium] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._loaders: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Remove what an earlier process left: nobody knows its addresses any more."""
        await asyncio.to_thread(self._empty)

    async def stop(self) -> None:
        """Remove all media."""
        if self._loaders is not None:
            with contextlib.suppress(Unavailable):
                await self._loaders
        self._media.clear()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def add(self, node: str, generation: int, build: Path, parameters: str, fragment: bytes, ends: float) -> str:
        """Make a medium: the name to fetch it by until ``ends``. An earlier one of the same node is gone."""
        self.remove(node)
        self._remove_old()
        if self._loaders is None or (self._loaders.done() and self._loaders.exception()):
            self._loaders = asyncio.create_task(asyncio.to_thread(self._make_loaders), name="boot loaders")
        await asyncio.shield(self._loaders)
        name = f"{secrets.token_urlsafe(32)}.iso"
        async with self._turn:
            await asyncio.to_thread(self._make, build, parameters, fragment, self.folder / _stored(name))
        self._media[_stored(name)] = Medium(_stored(name), node, generation, ends)
        return name

    def find(self, name: str) -> Medium | None:
        """The medium that ``name`` stands for; None: there is none, or not any more."""
        medium = self._media.get(_stored(name)) if _NAME.match(name) else None
        return medium if medium is not None and medium.ends > self._clock() else None

    def remove(self, node: str) -> None:
        """The node has what it needs: its medium goes."""
        for stored in [stored for stored, medium in self._media.items() if medium.node == node]:
            self._drop(stored)

    def _remove_old(self) -> None:
        now = self._clock()
        for stored in [stored for stored, medium in self._media.items() if medium.ends <= now]:
            self._drop(stored)

    def _drop(self, stored: str) -> None:
        del self._media[stored]
        (self.folder / stored).unlink(missing_ok=True)

    # in a thread

    def _empty(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o711, parents=True)

    def _make_loaders(self) -> None:
        """GRUB for BIOS, and for UEFI inside the small file system that firmware looks at."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".loader-") as scratch:
            early, program = Path(scratch, "early.cfg"), Path(scratch, "BOOTX64.EFI")
            early.write_text(_EARLY)
            made = Path(scratch, _UEFI)
            mkimage = ["grub-mkimage", "-c", str(early), "-p", "/boot/grub"]
            _run([*mkimage, "-O", "i386-pc-eltorito", "-o", str(self.folder / _BIOS), "biosdisk", *_MODULES])
            _run([*mkimage, "-O", "x86_64-efi", "-o", str(program), "part_gpt", "part_msdos", "fat", *_MODULES])
            with made.open("wb") as file:
                file.truncate(4 * 2**20)
            _run(["mformat", "-i", str(made), "::"])
            _run(["mmd", "-i", str(made), "::/EFI", "::/EFI/BOOT"])
            _run(["mcopy", "-i", str(made), str(program), "::/EFI/BOOT/BOOTX64.EFI"])
            made.replace(self.folder / _UEFI)

    def _make(self, build: Path, parameters: str, fragment: bytes, target: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".medium-") as scratch:
            config, secret, mark = Path(scratch, "grub.cfg"), Path(scratch, "fragment"), Path(scratch, "mark")
            iso = Path(scratch, "iso")
            config.write_text(_grub(parameters))
            secret.write_bytes(fragment)
            mark.touch()
            grafts = {
                "/boot/grub/grub.cfg": config,
                "/boot/vmlinuz": build / KERNEL,
                "/boot/initrd": build / INITRD,
                "/boot/fragment": secret,
                f"/{_MARK}": mark,
                f"/boot/{_BIOS}": self.folder / _BIOS,
                f"/boot/{_UEFI}": self.folder / _UEFI,
            }
            _run(
                ["xorriso", "-as", "mkisofs", "-quiet", "-r", "-V", "STRATA", "-o", str(iso), "-graft-points"]
                + ["-b", f"boot/{_BIOS}", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"]
                + ["--grub2-boot-info", "-eltorito-alt-boot", "-e", f"boot/{_UEFI}", "-no-emul-boot"]
                + [f"{inside}={outside}" for inside, outside in grafts.items()]
            )
            iso.chmod(0o600)
            if self._reader is not None:
                os.chown(iso, *self._reader)
            iso.replace(target)


def _grub(parameters: str) -> str:
    """What GRUB does. It speaks on the serial line, which is captured."""
    return f"""serial --unit=0 --speed=115200
terminal_input console serial
terminal_output serial
set gfxpayload=text
set timeout=0
menuentry Strata {{
  echo "Strata: booting from a medium"
  linux /boot/vmlinuz {parameters}
  initrd /boot/initrd /boot/fragment
}}
"""


def _stored(name: str) -> str:
    """What the file is called: whoever sees the folder cannot fetch from it."""
    return hashlib.sha256(name.encode()).hexdigest() + ".iso"


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT, check=False)
    except FileNotFoundError:
        raise Unavailable(
            f"{command[0]} is not installed",
            where="boot media",
            hint="apt-get install xorriso mtools grub-common grub-pc-bin grub-efi-amd64-bin",
        ) from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took longer than {_LIMIT:.0f} s", where="boot media") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unavailable(f"{command[0]} failed: {said[-1][:200] if said else done.returncode}", where="boot media")
