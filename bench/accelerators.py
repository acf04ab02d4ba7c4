"""What a container costs a program that computes on a GPU, and whether jobs are kept to the GPUs that they were given.

    PYTHONPATH=src python3 bench/accelerators.py --json

On a machine with NVIDIA GPUs, as root, by a Python that has PyTorch; of Strata it needs the sources, msgspec, and
``strata-run`` (``make native``). Facts are those of the detector, and ``facts_right`` says whether ``nvidia-smi`` says
the same, word for word, both of which are shown. A product of two square matrices (bf16, ``--size``) is computed by
somebody who is not root, on the machine itself (``native_tflops``) and in a container with the devices and files of one
CDI device (``container_tflops``), in turn, ``--rounds`` times each; both are medians, and ``container_ratio`` is the
median of the rounds' ratios, of which ``round_ratios`` are the least and the most. Each computes for about three
seconds, since the clock of a GPU that was idle takes a while to settle. ``visible_unassigned``: how many GPUs a
container sees that was given none, though it has the driver's libraries. ``confined``: what the kernel says to a
process, outside of any container, that opens a GPU which its device cgroup does not give it; and ``confined_given`` to
one which it does; where there are no device cgroups, why not.

On a machine without a GPU it says so, and measures nothing.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from measure import Figures, arguments, main, say, scratch, show

from strata.core.errors import StrataError
from strata.jobs.accelerators.assignment import LIBRARIES, Assigned, choose
from strata.jobs.accelerators.cdi import specifications
from strata.jobs.accelerators.confinement import confine
from strata.jobs.accelerators.detection import detect
from strata.jobs.accelerators.records import Found
from strata.jobs.containers.records import Bind, Container, Ready
from strata.jobs.containers.runtimes.native import options as runner_options
from strata.jobs.native import program

_NOBODY = 65534
_AS_USER = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
_LIMIT = 240
_PRODUCT = """
import sys, time, torch
size, count = int(sys.argv[1]), 1500
a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
for _ in range(500): a @ b
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
for _ in range(count): a @ b
end.record()
torch.cuda.synchronize()
print(2 * size ** 3 * count / begin.elapsed_time(end) / 1e9)
"""
_VISIBLE = """
import glob, torch
print(torch.cuda.device_count() + len(glob.glob("/dev/nvidia[0-9]*")))
"""
_OPEN = """
import os, sys
sys.stdin.readline()
try:
    os.close(os.open(sys.argv[1], os.O_RDWR))
    print("open")
except OSError as error:
    print(error.strerror)
"""


def run() -> None:
    """All of it, and one object."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="products of each kind")
    parser.add_argument("--size", type=int, default=8192, help="rows and columns of a matrix")
    options = parser.parse_args()
    found = detect()
    cards = [card for card in found.accelerators if card.make == "nvidia" and card.devices]
    figures: Figures = {"accelerators": len(cards)}
    if cards:
        with scratch() as folder:
            figures |= facts(found) | measured(folder, found, options.size, options.rounds) | confined(found)
    else:
        figures["said"] = "no NVIDIA GPU with a driver that runs: nothing to measure"
    show(figures, as_json=options.json)


def facts(found: Found) -> Figures:
    """Each card as the detector and as the driver's own program tell of it, and whether they say the same."""
    asked = ("--query-gpu=pci.bus_id,name,uuid,memory.total,driver_version", "--format=csv,noheader,nounits")
    lines = [line.split(", ") for line in _said(["nvidia-smi", *asked]).splitlines()]
    cards = [card for card in found.accelerators if card.make == "nvidia"]
    driver = found.supports("nvidia").driver
    told = {address[-12:].lower(): rest for address, *rest in lines}
    mine = {card.address: [card.name, card.id, str(card.memory_bytes >> 20), driver] for card in cards}
    return {
        "device": cards[0].cdi,
        "memory_gib": round(cards[0].memory_bytes / 2**30),
        "cdi_kinds": [one["kind"] for one in specifications(found)],
        "detected": mine,
        "nvidia_smi": told,
        "facts_right": mine == told,
    }


def measured(folder: Path, found: Found, size: int, rounds: int) -> Figures:
    """Products on the machine and in a container, in turn; and what is seen in one that was given nothing."""
    folder.chmod(0o755)
    card = next(card for card in found.accelerators if card.make == "nvidia")
    one = choose(found, [card.cdi])
    words = (sys.executable, "-c", _PRODUCT, str(size))
    ways = {"native_tflops": [*_AS_USER], "container_tflops": _inside(folder, found, one, one)}
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, before in ways.items():
            speeds[way].append(round(float(_said([*before, *words])), 1))
            say(f"{way} {speeds[way][-1]}", quiet=False)
    medians = {way: statistics.median(values) for way, values in speeds.items()}
    ratios = [inside / outside for outside, inside in zip(*speeds.values(), strict=True)]
    seen = _said([*_inside(folder, found, Assigned(), one), sys.executable, "-c", _VISIBLE])
    return {
        "rounds": rounds,
        "size": size,
        **medians,
        "each": speeds,
        "container_ratio": round(statistics.median(ratios), 4),
        "round_ratios": [round(min(ratios), 4), round(max(ratios), 4)],
        "visible_unassigned": int(seen),
    }


def confined(found: Found) -> Figures:
    """What the kernel says to processes that open a GPU, by the device cgroup that they are in."""
    card = next(card for card in found.accelerators if card.make == "nvidia")
    answers: Figures = {}
    for name, given in (("confined", Assigned()), ("confined_given", Assigned((card,)))):
        line = [sys.executable, "-c", _OPEN, card.devices[0]]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                confine(process.pid, found, given)
                answers[name] = process.communicate("go\n", timeout=_LIMIT)[0].strip()
            except StrataError as error:
                answers[name] = f"not tried: {error}"
                process.kill()
    return answers


def _inside(folder: Path, found: Found, assigned: Assigned, driver: Assigned) -> list[str]:
    """What stands before a command that runs in an image made of this machine's own programs, with the devices of what
    is assigned, and with the files of the drivers that ``driver`` needs and no other files of theirs."""
    root, drivers = folder / "image", Path(LIBRARIES).parent
    if not root.exists():
        for place in ("usr/local", "etc", "dev", "proc", "sys", "tmp"):
            (root / place).mkdir(parents=True)
        for path in (*Path("/").iterdir(), *Path("/usr").iterdir(), *Path("/usr/local").iterdir()):
            if path.is_symlink():
                (root / str(path)[1:]).symlink_to(path.readlink())
        (folder / "strata-run").write_bytes(program("strata-run").read_bytes())
        (folder / "strata-run").chmod(0o755)
    shown = [*(path for path in Path("/usr").iterdir() if path.name != "local"), *Path("/usr/local").iterdir()]
    shown += [Path("/", name) for name in ("bin", "sbin", "lib", "lib64", "etc", "opt", "root")]
    shown += [Path(place) for place in (sys.prefix, sys.base_prefix) if not place.startswith("/usr")]
    kept = {path for path in shown if path.is_dir() and not path.is_symlink() and path != drivers}
    outer = sorted(path for path in kept if kept.isdisjoint(path.parents))
    binds = [Bind(source=str(path), read_only=True) for path in outer]
    binds += [Bind(source=source, target=target, read_only=True) for source, target in driver.shown(found)]
    libraries = ":".join(filter(None, (LIBRARIES, os.environ.get("LD_LIBRARY_PATH"))))
    env = {"LD_LIBRARY_PATH": libraries, "HOME": "/tmp", **assigned.variables(found, hidden=True)}
    asked = Container(image=f"oci:{root}")
    ready = Ready(asked=asked, root=str(root), binds=tuple(binds), devices=assigned.devices(found), env=env)
    return [*_AS_USER, str(folder / "strata-run"), *runner_options(ready), "--"]


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if done.returncode:
        raise SystemExit(
            f"{shutil.which(command[0]) or command[0]} ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    return done.stdout.strip()


if __name__ == "__main__":
    main(run)
