"""Images as mounted file systems, each once, whoever uses it; and a member's own view of one, writable in memory."""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ..errors import AgentError, CommandFailed
from ..files import inside, load_json, read_text, save_json
from ..paths import Paths
from .release import Release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_IMAGES_SHARE = "80%"
_WRITABLE_SHARE = "50%"
_MOST_FILES_BYTES = 65536
_START = (
    "import sys; sys.path[:] = sys.argv[2].split(':'); __import__(sys.argv[1], fromlist=['main']).main(sys.argv[3:])"
)


def run_tool(*command: str) -> None:
    """Run one of the minimal OS's own tools."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"{command[0]}: {error}") from None
    if done.returncode:
        text = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise CommandFailed(f"{' '.join(command)}: {text[:300] or done.returncode}")


def unmount(path: Path) -> None:
    """Take a mount away; one that is busy goes when its last user does."""
    if os.path.ismount(path):
        run_tool("umount", "-l", str(path))


def image_store(paths: Paths) -> Path:
    """The memory that holds whole images: a file system of its own, so that a full one hurts nothing else."""
    if not os.path.ismount(paths.images):
        paths.images.mkdir(parents=True, exist_ok=True, mode=0o700)
        run_tool("mount", "-t", "tmpfs", "-o", f"size={_IMAGES_SHARE},mode=0700", "tmpfs", str(paths.images))
    return paths.images


def key_of(release: Release, mode: str) -> str:
    """What an image's file, mount and chunk list are called: the same image in two modes is two things."""
    return f"{release.hex}-{mode}"


def mount_whole(paths: Paths, key: str) -> Path:
    """Mount an image that lies in memory whole."""
    target = paths.mounts / key
    if not os.path.ismount(target):
        target.mkdir(parents=True, exist_ok=True)
        image = image_store(paths) / f"{key}.squashfs"
        run_tool("mount", "-t", "squashfs", "-o", "loop,ro,nodev", str(image), str(target))
    return target


def mount_on_demand(paths: Paths, key: str, release: Release, digests: bytes, controllers: list[str]) -> Path:
    """Mount an image whose bytes are fetched when they are read."""
    from .nbd import free_device

    target = paths.mounts / key
    if os.path.ismount(target):
        if image_server(paths, key) is not None:
            return target
        detach(paths, key)
    device = free_device(paths.sys("block"))
    package = __name__.rsplit(".", 1)[0]
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _START,
        f"{package}.demand",
        ":".join(sys.path),
        str(paths.run),
        device,
    ]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdin is not None and server.stdout is not None
    told = {"release": release.values, "digests": digests.hex(), "controllers": controllers}
    with server.stdin, server.stdout:
        server.stdin.write(json.dumps(told).encode() + b"\n")
        server.stdin.flush()
        if server.stdout.readline() != b"ready\n":
            server.kill()
            server.wait()
            raise CommandFailed(f"{release} cannot be served on demand: the block device's server ended")
    save_json(paths.mounts / f"{key}.json", {"device": device, "pid": server.pid})
    target.mkdir(parents=True, exist_ok=True)
    try:
        _wait_for_size(paths.sys("block") / device.rsplit("/", 1)[1] / "size")
        run_tool("mount", "-t", "squashfs", "-o", "ro,nodev", device, str(target))
    except AgentError:
        detach(paths, key)
        raise
    return target


def image_server(paths: Paths, key: str) -> int | None:
    """The process that serves an image on demand, if it lives."""
    served = load_json(paths.mounts / f"{key}.json")
    if not isinstance(served, dict):
        return None
    state = read_text(paths.proc(f"{int(served['pid'])}/stat"), 1024).rpartition(")")[2].split()
    return int(served["pid"]) if state and state[0] not in "ZX" else None


def _wait_for_size(path: Path) -> None:
    """The device has its size only once the kernel's side runs."""
    for _ in range(200):
        if path.read_text().strip() != "0" and (path.parent / "pid").exists():
            return
        time.sleep(0.02)
    raise CommandFailed(f"{path.parent.name} did not come up")


def detach(paths: Paths, key: str) -> None:
    """Take an image's file system away, and the block device and the server that it came from."""
    unmount(paths.mounts / key)
    record = paths.mounts / f"{key}.json"
    served = load_json(record)
    if isinstance(served, dict):
        from .nbd import disconnect

        disconnect(str(served["device"]))
        record.unlink(missing_ok=True)


def remove_image(paths: Paths, key: str) -> None:
    """Take away an image that no member uses any more, and its memory with it."""
    detach(paths, key)
    for leftover in (paths.images / f"{key}.squashfs", paths.images / f"{key}.partial", paths.chunks / key):
        leftover.unlink(missing_ok=True)
    if (paths.mounts / key).is_dir():
        (paths.mounts / key).rmdir()


def member_root(paths: Paths, identifier: str, image: Path, files: list[dict[str, Any]]) -> Path:
    """A member's root: the image below, its own files and whatever it writes in memory above."""
    home = paths.members / identifier
    memory = home / "memory"
    root = home / "rootfs"
    memory.mkdir(parents=True, exist_ok=True, mode=0o700)
    root.mkdir(exist_ok=True)
    run_tool("mount", "-t", "tmpfs", "-o", f"size={_WRITABLE_SHARE},mode=0755", "tmpfs", str(memory))
    for name in ("upper", "work"):
        (memory / name).mkdir(mode=0o755)
    layers = f"lowerdir={image},upperdir={memory}/upper,workdir={memory}/work"
    run_tool("mount", "-t", "overlay", "-o", layers, "overlay", str(root))
    place_files(root, files)
    return root


def place_files(root: Path, files: list[dict[str, Any]]) -> None:
    """Write the node's own files over the image; no link in the image leads one of them outside."""
    total = 0
    for entry in files:
        try:
            path, mode = str(entry["path"]), int(entry.get("mode") or 0o644)
            content = base64.b64decode(str(entry.get("content") or ""), validate=True)
        except (KeyError, ValueError, binascii.Error) as error:
            raise CommandFailed(f"a file of the node's overlay is malformed: {error}") from None
        total += len(content)
        if not path.startswith("/") or total > _MOST_FILES_BYTES:
            raise CommandFailed(f"the node's overlay is refused at {path[:100]!r}: absolute paths, 64 KiB in all")
        target = inside(root, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            os.fchmod(descriptor, mode & 0o7777)


def remove_member_root(paths: Paths, identifier: str) -> None:
    """Take a member's view away, and what it wrote with it."""
    home = paths.members / identifier
    for name in ("rootfs", "memory"):
        unmount(home / name)
    if home.is_dir():
        import shutil

        shutil.rmtree(home, ignore_errors=True)
