#!/usr/bin/env python3
"""``strata-slurm-health``: Slurm's HealthCheckProgram. One file that stands alone, so that an image can have it.

Runs on a node, as root. Drains the node where something is wrong, and resumes what it drained itself. Slurm gives it 60
seconds, and runs it before slurmd reports for duty.
"""

from __future__ import annotations

import os
import subprocess
import sys

CHECKS = "/etc/strata/health.d"
MARK = "health: "
"""Begins the reason of a drain that is ours to take back."""
EACH, ALL = 20.0, 40.0
"""Seconds for one check, and for all of them."""
_USAGE = f"""usage: strata-slurm-health

Checks this node: its root file system, and the programs in {CHECKS}.
It drains the node in Slurm where a check fails, and resumes what it drained itself when all are well.
Slurm starts this program as its HealthCheckProgram.
"""
_LEAST_FREE = 0.02
_REASON = 200


def main() -> None:
    """The program. Its exit status is not looked at."""
    if len(sys.argv) > 1:
        asked = sys.argv[1] in ("-h", "--help")
        (sys.stdout if asked else sys.stderr).write(_USAGE)
        sys.exit(0 if asked else 2)
    name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
    sys.exit(run(name, os.environ.get("STRATA_HEALTH_CHECKS", CHECKS)))


def run(name: str, checks: str) -> int:
    """Look, and tell Slurm if it does not know yet: 0 if the node is well."""
    trouble = filesystem("/") or checked(checks)
    try:
        drained, reason = state(name)
        if trouble and not drained:
            _scontrol("update", f"NodeName={name}", "State=DRAIN", f"Reason={MARK}{trouble}"[:_REASON])
        elif not trouble and drained and reason.startswith(MARK):
            _scontrol("update", f"NodeName={name}", "State=RESUME")
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Slurm could not be told: {error}\n")
        return 1
    return 1 if trouble else 0


def filesystem(path: str) -> str:
    """What is wrong with a file system; empty: nothing."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if found.f_flag & os.ST_RDONLY:
        return f"{path} cannot be written to"
    if found.f_blocks and found.f_bavail / found.f_blocks < _LEAST_FREE:
        return f"{path} is full"
    return ""


def checked(folder: str) -> str:
    """What the first of the site's programs that fails has to say; empty: all is well."""
    import time

    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 (standing alone, it starts fast)
    except FileNotFoundError:
        return ""
    end = time.monotonic() + ALL
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118
        if name.startswith(".") or not os.access(path, os.X_OK):
            continue
        limit = min(EACH, end - time.monotonic())
        if limit <= 0:
            return f"checks took more than {ALL:g} s"
        try:
            done = subprocess.run(
                [path], stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False, cwd="/"
            )
        except subprocess.TimeoutExpired:
            return f"{name} does not end"
        except OSError as error:
            return f"{name}: {error.strerror}"
        if done.returncode:
            said = (done.stdout + done.stderr).decode("ascii", "replace").strip().splitlines()
            told = "".join(c if c.isprintable() else "?" for c in said[-1]) if said else f"status {done.returncode}"
            return f"{name}: {told}"
    return ""


def state(name: str) -> tuple[bool, str]:
    """Whether the node is drained, and why."""
    said = _scontrol("-o", "show", "node", name)
    drained = any("DRAIN" in word for word in said.split() if word.startswith("State="))
    _, _, reason = said.partition(" Reason=")
    return drained, reason.split(" [", 1)[0].strip()


def _scontrol(*words: str) -> str:
    done = subprocess.run(
        ["scontrol", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=15, check=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
