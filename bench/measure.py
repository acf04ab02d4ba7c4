"""What the benchmarks share: figures of processes, children that never outlive us, and how results are shown.

Each script prints one JSON object with ``--json`` and a table without; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

Figures = dict[str, Any]

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_TICKS = os.sysconf("SC_CLK_TCK")


class Gauge:
    """Wall and processor time of this process, from the moment that it is made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return time.perf_counter() - self._wall

    @property
    def cores(self) -> float:
        """Processors kept busy so far, on average."""
        return (time.process_time() - self._cpu) / max(self.seconds, 1e-9)


def own_peak_mb() -> float:
    """The most memory that this process has held, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def peak_mb(pid: int) -> float:
    """The most memory that process ``pid`` has held, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def cpu_seconds(pid: int) -> float:
    """Processor time that process ``pid`` has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for below in (task / "children").read_text().split():
            yield from family(int(below))


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value that ``part`` (0 to 1) of ``ordered`` do not exceed."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards. Its path is short: unix sockets in it have little room for names."""
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as found:
        yield Path(found)


@contextlib.contextmanager
def child(command: Sequence[str], *, grace: float = 10.0, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, and with us however we end."""
    process = subprocess.Popen(command, preexec_fn=_die_with(os.getpid()), stdin=subprocess.DEVNULL, **more)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def wait_until(what: str, condition: Callable[[], bool], process: subprocess.Popen[bytes], limit: float = 60.0) -> None:
    """Poll until ``condition`` holds; give up when ``process`` has ended or ``limit`` seconds have passed."""
    deadline = time.monotonic() + limit
    while not condition():
        if process.poll() is not None:
            raise SystemExit(f"{what}: it ended with code {process.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not there after {limit:.0f} s")
        time.sleep(0.02)


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with what every script takes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, and nothing else")
    return parser


def say(text: str, *, quiet: bool) -> None:
    """A line of progress on standard error."""
    if not quiet:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def show(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """The result."""
    rounded = {name: _rounded(value) for name, value in figures.items()}
    if as_json:
        print(json.dumps(rounded))
        return
    width = max(map(len, rounded))
    for name, value in rounded.items():
        print(f"{name:<{width}}  {value if not isinstance(value, float) else format(value, ',')}")


def main(run: Callable[[], None]) -> NoReturn:
    """Run a script; SIGTERM ends it the way Ctrl-C does, so that it cleans up."""
    code = 130

    def end(*_: object) -> None:
        nonlocal code
        code = 143
        # An exception raised here could come up in a place that swallows it; asyncio ends its main task instead.
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
    signal.signal(signal.SIGTERM, end)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(code)
    sys.exit(0)


def _rounded(value: object) -> object:
    """Four significant digits: more would be noise."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)


def _die_with(parent: int) -> Callable[[], None]:
    def ask() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask
