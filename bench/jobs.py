"""What jobs cost: to start their programs in containers, to run them on this machine, to list them.

    .venv/bin/python bench/jobs.py --json

``native``: ``true`` of one small image (a static busybox), started ``--rounds`` times each in turn, as somebody who is
not root: by itself (``bare_ms``), by ``unshare -rm`` and ``chroot`` (``unshare_ms``), by ``strata-run`` (``native_ms``)
also with a PID namespace (``native_pid_ms``), and with a bind that the image has no place for, so that it needs a layer
(``native_layer_ms``). Medians, from the start to the end of the process; ``native_ratio_to_unshare`` is of two of them.

``runtimes``: the same by every runtime that is here; ``RUNTIME_ratio_to_unshare`` is what each takes of the least.

``local``, ``list``: see ``bench/jobs_service.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jobs_runtimes import ratios
from jobs_service import listed, local
from measure import Figures, arguments, main, say, scratch, show

from strata.jobs.native import program

_NOBODY = 65534
_EVERYBODY = 0o755


def run() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="starts of each kind")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="a part; all of them otherwise")
    parser.add_argument("--jobs", type=int, default=1000, help="jobs that are run on this machine")
    parser.add_argument("--listed", type=int, default=10_000, help="jobs that are listed")
    parser.add_argument("--polls", type=int, default=4, help="polls of the scheduler while jobs are listed")
    options = parser.parse_args()
    figures: Figures = {"rounds": options.rounds}
    for name, part in PARTS.items():
        if not options.only or name in options.only:
            say(f"{name} ...", quiet=options.json)
            with scratch() as directory:
                directory.chmod(_EVERYBODY)
                figures |= part(directory, options)
    show(figures, as_json=options.json)


def native(directory: Path, rounds: int) -> Figures:
    """The native runner against what ``unshare`` does."""
    root = small_image(directory / "image")
    runner, true = str(program("strata-run")), "/bin/true"
    medians = as_somebody(
        lambda: interleaved(
            {
                "bare_ms": [f"{root}{true}"],
                "unshare_ms": ["unshare", "-rm", "chroot", str(root), true],
                "native_ms": [runner, "--root", str(root), "--", true],
                "native_pid_ms": [runner, "--root", str(root), "--pid", "--", true],
                "native_layer_ms": [runner, "--root", str(root), "--bind", "/usr:/host/usr:ro", "--", true],
            },
            rounds,
        )
    )
    return {**medians, "native_ratio_to_unshare": medians["native_ms"] / medians["unshare_ms"]}


PARTS: Mapping[str, Callable[[Path, Namespace], Figures]] = {
    "native": lambda directory, options: native(directory, options.rounds),
    "runtimes": lambda directory, options: ratios(directory, options.rounds),
    "local": lambda directory, options: local(directory, options.jobs),
    "list": lambda directory, options: listed(directory, options.listed, options.polls),
}
"""By name; each gets a directory that everybody can look into, and says its figures."""


def small_image(root: Path) -> Path:
    """An unpacked image that has ``true`` and little else."""
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin")
    (root / "bin/true").symlink_to("busybox")
    return root


def interleaved(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, float]:
    """Milliseconds from the start of each to its end: medians of so many rounds, in each of which all have a turn, so
    that what else the machine does hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for name, command in commands.items():
        _start(name, command)  # what is read from disk for the first time is nobody's cost
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(_start(name, command))
    return {name: statistics.median(each) for name, each in found.items()}


def _start(name: str, command: Sequence[str]) -> float:
    begun = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ)
    _, status = os.waitpid(pid, 0)
    took = (time.perf_counter() - begun) * 1000
    if status:
        raise SystemExit(f"{name}: {' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return took


def as_somebody(work: Callable[[], Figures]) -> Figures:
    """What it finds in a process that is not root's."""
    if os.geteuid() != 0:
        return work()
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            os.write(sending, json.dumps(work()).encode())
            code = 0
        except SystemExit as end:
            os.write(2, f"{end}\n".encode())
        finally:
            os._exit(code)
    os.close(sending)
    with os.fdopen(receiving, "rb") as told:
        text = told.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit("the part that is not root's has failed")
    figures: Figures = json.loads(text)
    return figures


if __name__ == "__main__":
    main(run)
