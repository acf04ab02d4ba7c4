"""How long the minimal OS takes from the kernel's first line to the agent's, on an emulated machine.

    .venv/bin/python bench/boot_minos.py --json

Built for the occasion from this machine's apt sources. ``kernel_to_agent_s`` is what passes; ``kernel_to_agent_cpu_s``
is how much of it the emulator worked, whatever else the machine did meanwhile. The best of ``--turns`` counts.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from measure import Figures, arguments, child, cpu_seconds, main, say, scratch, show

import strata
from strata.provisioning.minos.artefacts import Artefacts
from strata.provisioning.minos.build import build
from strata.provisioning.minos.recipe import recipe
from strata.provisioning.minos.tree import File, pack
from strata.provisioning.signing import Signer

_NOBODY = "https://127.0.0.1:9"
"""The agent's controller. Nobody is there, and the agent says so as soon as it runs."""
_BOOT = {"node": "n0001", "generation": 1, "controllers": [_NOBODY], "ca": "", "token": "", "net": {"interfaces": []}}


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    show(measure(turns=given.turns, quiet=given.json), as_json=given.json)


def measure(*, turns: int = 3, quiet: bool = True) -> Figures:
    """``kernel_to_agent_s`` and ``kernel_to_agent_cpu_s``."""
    with scratch() as folder:
        say("building the minimal OS ...", quiet=quiet)
        agent = Path(strata.__file__).parent / "agent"
        builds, signer = Artefacts(folder / "minos"), Signer.open(folder / "signing")
        build(recipe("x86_64"), agent, folder / "packages", builds, signer)
        made = folder / "minos/latest-x86_64"
        fragment = pack({"etc/strata/boot.json": File(0o100600, json.dumps(_BOOT).encode())})
        (folder / "initrd").write_bytes((made / "initrd").read_bytes() + fragment)
        found = []
        for turn in range(turns):
            say(f"booting it, {turn + 1} of {turns} ...", quiet=quiet)
            found.append(_boot(made / "vmlinuz", folder / "initrd"))
    return {
        "kernel_to_agent_s": min(seconds for seconds, _ in found),
        "kernel_to_agent_cpu_s": min(worked for _, worked in found),
    }


def _boot(kernel: Path, initrd: Path) -> tuple[float, float]:
    command = ["qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-smp", "1", "-nographic", "-no-reboot"]
    command += ["-kernel", str(kernel), "-initrd", str(initrd), "-append", "console=ttyS0 panic=1"]
    command += ["-nic", "none", "-device", "virtio-rng-pci"]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as machine:
        assert machine.stdout is not None
        began = worked = 0.0
        for line in machine.stdout:
            if b"Linux version" in line:
                began, worked = time.perf_counter(), cpu_seconds(machine.pid)
            if began and b"strata-agent:" in line:
                return time.perf_counter() - began, cpu_seconds(machine.pid) - worked
    raise SystemExit("the machine ended before its agent began")


if __name__ == "__main__":
    main(run)
