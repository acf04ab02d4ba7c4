"""The minimal OS, built once for all tests that boot it, and a QEMU that boots it."""

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import Empty, Queue

import strata
from strata.provisioning.minos import build as build_module
from strata.provisioning.minos.artefacts import Artefacts
from strata.provisioning.minos.build import build
from strata.provisioning.minos.recipe import recipe
from strata.provisioning.minos.tree import File, pack
from strata.provisioning.signing import Signer

SOURCES = Path(strata.__file__).parent
AGENT = SOURCES / "agent"
SHARED = Path(tempfile.gettempdir()) / f"strata-test-minos-{os.getuid()}"
PACKAGES = SHARED / "strata" / "packages"
"""Where the command has them, too, if ``SHARED`` is its user's cache."""
KEPT = 3
LATEST = "latest-x86_64"


def built() -> Path:
    """The folder (as ``STATE/minos``) with a build of the present sources. Workers in parallel share one build."""
    SHARED.mkdir(mode=0o700, exist_ok=True)
    place = SHARED / _key()
    with (SHARED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "minos" / LATEST).exists():
            shutil.rmtree(place, ignore_errors=True)
            make(place / "minos", place / "signing")
            _forget_old()
    return place / "minos"


def make(
    output: Path,
    signing: Path,
    arch: str = "x86_64",
    cache: Path = PACKAGES,
    kernel: str = "",
    modules: Iterable[str] = (),
) -> None:
    """Build into ``output``, with packages that are shared."""
    build(recipe(arch), AGENT, cache, Artefacts(output), Signer.open(signing), kernel=kernel, extra=modules)


def packages_only(into: Path) -> Path:
    """A cache that has the packages of the shared one, and nothing that was made of them."""
    built()
    into.mkdir()
    for path in PACKAGES.glob("*.deb"):
        shutil.copy(path, into)
    return into


def initrd_with(extra: Mapping[str, File], into: Path, builds: Path | None = None) -> Path:
    """The initrd with another one behind it, as a boot fragment is: its files come besides, or instead."""
    into.write_bytes(((builds or built()) / LATEST / "initrd").read_bytes() + pack(extra))
    return into


def unpack(initrd: Path) -> dict[str, bytes]:
    """The regular files of an initrd."""
    with tempfile.TemporaryDirectory() as folder:
        data = initrd.read_bytes()
        while data:
            archive = lzma.LZMADecompressor()
            plain = archive.decompress(data)
            subprocess.run(["cpio", "-id", "--quiet", "--no-absolute-filenames"], input=plain, cwd=folder, check=True)
            data = archive.unused_data
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file() and not path.is_symlink()
        }


class Machine:
    """A QEMU without acceleration that boots the minimal OS. Use it as a context: it is gone afterwards."""

    def __init__(self, initrd: Path, *options: str, append: str = "") -> None:
        self._command = [
            *("qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-smp", "1", "-nographic", "-no-reboot"),
            *("-kernel", str(built() / LATEST / "vmlinuz"), "-initrd", str(initrd)),
            *("-append", f"console=ttyS0 panic=1 {append}".strip()),
            *("-netdev", "user,id=n0,restrict=on", "-device", "virtio-net-pci,netdev=n0,romfile="),
            *("-device", "virtio-rng-pci", *options),
        ]
        self.console: list[str] = []
        self._lines: Queue[str | None] = Queue()

    def __enter__(self) -> "Machine":
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def wait_for(self, text: str, within: float = 90.0) -> str:
        """The first line from here on that holds ``text``; an error with the console's end if none comes."""
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except Empty:
                break
            if line is None:
                break
            if text in line:
                return line
        raise AssertionError(f"no {text!r} on the console:\n" + "\n".join(self.console[-30:]))

    def type(self, text: str) -> None:
        """Type on the console."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def ended(self, within: float = 60.0) -> None:
        """Wait until the machine is off."""
        self._process.wait(within)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip()
            self.console.append(text)
            self._lines.put(text)
        self._lines.put(None)


def _key() -> str:
    total = hashlib.sha256()
    for folder in (AGENT, Path(build_module.__file__).parent):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(f"{path.relative_to(SOURCES)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def _forget_old() -> None:
    places = sorted(SHARED.glob("????????????????"), key=lambda path: path.stat().st_mtime)
    for path in places[:-KEPT]:
        shutil.rmtree(path)
