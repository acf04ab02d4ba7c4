"""All tests, as ``make test`` and CI run them; the few that failed are run once more, with the machine to themselves.

Real daemons and virtual machines, six files at a time, on whatever machine this is: a test that fails beside others and
passes alone is a race, of the test or of the product. It is named in the last lines, and it is a defect; but it does
not say that Strata does not work here, which is what ``make test`` is asked. With ``--steady`` it fails the run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BY_CHANCE = 8
"""More failures than so many are not left to a second run."""
TOGETHER = ("-n", "6", "--dist", "loadfile", "--no-loadscope-reorder")
_FAILED = 1  # pytest's exit status where tests failed, and nothing worse


def main(words: Sequence[str]) -> int:
    """Run them; 0 if all passed, at the latest alone."""
    parser = argparse.ArgumentParser(description="Run all tests; those that failed, once more and alone.")
    parser.add_argument("--steady", action="store_true", help="a test that passes only alone fails the run")
    parser.add_argument("tests", nargs="*", help="files or folders; without: all")
    given = parser.parse_args(words)
    cache = Path(".pytest_cache/v/cache/lastfailed")
    cache.unlink(missing_ok=True)  # what failed in an earlier run, and may not be asked for now
    status = _pytest(*TOGETHER, *given.tests)
    if status != _FAILED or not cache.exists():
        return status
    failed = sorted(json.loads(cache.read_text()))
    if given.steady or len(failed) > BY_CHANCE:
        return status
    print(f"\n{len(failed)} failed beside the others; once more, alone:", flush=True)
    status = _pytest("--last-failed", *given.tests)
    if status == 0:
        print(f"unsteady: {len(failed)} failed beside others and passed alone. Each is a race to be mended:")
        print("\n".join(f"  {name}" for name in failed), flush=True)
    return status


def _pytest(*words: str) -> int:
    return subprocess.run([Path(sys.executable).with_name("pytest"), "-q", *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
