"""When a kernel dies: another one, loaded beforehand, runs the crash hook and reboots; what was left behind is told.

Memory for the other kernel is reserved at boot, by `crashkernel=` among the parameters. It is the same build that the
node booted, without the boot fragment: it has no token, no network and no agent.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

from ..errors import AgentError, Corrupt, Unreachable
from ..files import read_number, read_text
from ..link.logs import Logs
from ..paths import Paths

_MOST_RECORDS = 16
_MOST_LINES = 200
_MOST_BYTES = 65536
_MOST_HEADERS = 100
_LARGEST = 64 << 20
_FILES = ("vmlinuz", "initrd")
_KEXEC_FILE_LOAD = {"x86_64": 320, "aarch64": 294}
_ON_CRASH = 2
# What would take the memory of a small kernel, or means something to the boot loader only.
_LEFT_OUT = (
    *("crashkernel", "initrd", "BOOT_IMAGE", "hugepages", "hugepagesz", "default_hugepagesz", "hugetlb_cma", "cma"),
    *("log_buf_len", "swiotlb", "slub_debug", "mem", "memmap", "isolcpus", "nohz_full", "quiet"),
)
_ADDED = ("nr_cpus=1", "irqpoll", "reset_devices", "panic=10")


def load_crash_kernel(minos: dict[str, str], paths: Paths) -> bool:
    """Load a crash kernel if memory is reserved for one and none is loaded; whether one was.

    `minos` is the boot data's: where kernel and initrd are, and their digests.
    """
    reserved = read_number(paths.sys("kernel/kexec_crash_size"))
    if not reserved or read_number(paths.sys("kernel/kexec_crash_loaded")):
        return False
    if "url" not in minos:
        raise AgentError("memory is reserved for a crash kernel, but the boot data does not say where to fetch it")
    kernel, initrd = files = [paths.run / f"crash-{name}" for name in _FILES]
    try:
        for name, path in zip(_FILES, files, strict=True):
            fetch_checked(f"{minos['url']}/{name}", minos.get(name, ""), path)
        try:
            _kexec_file_load(kernel, initrd, crash_command_line(read_text(paths.proc("cmdline"))))
        except OSError as error:
            raise AgentError(
                f"the kernel did not accept the crash kernel ({reserved >> 20} MiB are reserved): {error}"
            ) from None
    finally:
        for path in files:
            path.unlink(missing_ok=True)
    return True


def crash_command_line(running: str) -> str:
    """The parameters of a crash kernel: those of the running one, as far as they suit a small kernel."""
    kept = [word for word in running.split() if word.partition("=")[0] not in _LEFT_OUT]
    return " ".join([*kept, *_ADDED])


def fetch_checked(url: str, digest: str, into: Path) -> None:
    """Fetch a file over plain HTTP, as the node's boot did; what is not of that digest (`sha256:…`) is an error."""
    scheme, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    host, _, port = place.rpartition(":")
    if scheme != "http" or not host or not port.isdigit():
        raise AgentError(f"{url!r} is not an address of boot files: expected http://HOST:PORT/PATH")
    total, size = hashlib.sha256(), 0
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 20.0) as connection:
            connection.sendall(f"GET /{path} HTTP/1.0\r\nHost: {place}\r\n\r\n".encode())
            with connection.makefile("rb") as answer, into.open("wb") as out:
                status = answer.readline(1000)
                for _ in range(_MOST_HEADERS):
                    if not answer.readline(1000).strip():
                        break
                if status.split(b" ")[1:2] != [b"200"]:
                    raise Unreachable(f"{url} was answered with {status[:60]!r}")
                while piece := answer.read(1 << 20):
                    size += len(piece)
                    if size > _LARGEST:
                        raise Corrupt(f"{url} is larger than {_LARGEST >> 20} MiB")
                    total.update(piece)
                    out.write(piece)
    except OSError as error:
        raise Unreachable(f"{url} cannot be fetched: {error}") from None
    if f"sha256:{total.hexdigest()}" != digest:
        raise Corrupt(f"{url} is not what this node booted")


def _kexec_file_load(kernel: Path, initrd: Path, command_line: str) -> None:
    import ctypes

    number = _KEXEC_FILE_LOAD.get(os.uname().machine)
    if number is None:
        raise AgentError(f"crash kernels are not known on {os.uname().machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    line = command_line.encode() + b"\0"
    with kernel.open("rb") as one, initrd.open("rb") as two:
        long = ctypes.c_long
        if libc.syscall(long(number), long(one.fileno()), long(two.fileno()), long(len(line)), line, long(_ON_CRASH)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def report_crash(paths: Paths, logs: Logs) -> int:
    """Tell of each record and remove it; how many there were."""
    records = sorted(path for path in paths.sys("fs/pstore").glob("*") if path.is_file())[:_MOST_RECORDS]
    for record in records:
        try:
            with record.open("rb") as source:
                text = source.read(_MOST_BYTES).decode("utf-8", "replace")
            logs.add("crash", f"an earlier kernel left {record.name}")
            for line in text.splitlines()[-_MOST_LINES:]:
                logs.add("crash", line)
            record.unlink()
        except OSError as error:
            logs.say(f"{record.name} in pstore cannot be read or removed: {error}")
    return len(records)
