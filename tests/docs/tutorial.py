"""Runs the tutorial from top to bottom as it is written: ``python tests/docs/tutorial.py --cluster virtual``.

What it prints is shown as it comes. It fails at the first command that fails, and at the end where something was
printed that is not like what the page shows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs_support import CLUSTERS, ROOT, SIMULATED, ZERO, differences, run_on, script


def main() -> int:
    """Run the tutorial; everything that it made is gone afterwards."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--cluster", choices=CLUSTERS, default="virtual", help="what to run it on [default: %(default)s]"
    )
    given = parser.parse_args()
    if given.cluster == "virtual" and os.geteuid() != 0:
        print("virtual machines need root; without it: --cluster simulated", file=sys.stderr)
        return 1
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="tutorial-"))  # short: a unix socket is in it
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")} | {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ.get('PATH', '')}:/usr/sbin",
        "STRATA_STATE": str(directory / "s"),
    }
    run = run_on(ZERO, given.cluster, service=SIMULATED)
    try:
        status, printed = _run(script(run), directory, environment)
    finally:
        subprocess.run(["strata", "down", "--delete"], cwd=directory, env=environment, check=False)
        shutil.rmtree(directory)
    different = differences(run, printed) if status == 0 else [f"it ended with {status}"]
    print("\n".join(("", *different, f"the tutorial, {given.cluster}: {'FAILED' if different else 'passed'}")), end=" ")
    print(f"after {time.monotonic() - began:.0f} s")
    return 1 if different else 0


def _run(text: str, directory: Path, environment: dict[str, str]) -> tuple[int, str]:
    """How a script ended, and what it printed, which is shown meanwhile."""
    process = subprocess.Popen(
        ["bash", "-c", text],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    kept = []
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            kept.append(line)
        return process.wait(), "".join(kept)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise


if __name__ == "__main__":
    raise SystemExit(main())
