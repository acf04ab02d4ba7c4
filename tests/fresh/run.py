"""What the README promises, on a Debian 12 that has nothing yet: ``python tests/fresh/run.py``.

Makes the machine (see ``machine``), clones what is committed here into it, and runs ``make up`` as the README has it,
``make down`` and ``make test`` there, one after the other until one fails. The last lines say what became of each.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.docs_support import taken_from_pages
from fresh.machine import BASE, SUITE, FreshMachine, Here, is_root

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = "make test-fresh"
"""What blocks say that are run here."""
TARGETS = (*(shlex.split(line, comments=True)[1] for line in taken_from_pages(TARGET)), "down", "test")
CLONE = "/srv/strata"
_BUNDLE = "/srv/strata.bundle"

_FETCH = f"""
set -e
if [ ! -d {CLONE} ]; then git clone -q {_BUNDLE} {CLONE}; fi
cd {CLONE}
git fetch -q {_BUNDLE} HEAD
git -c advice.detachedHead=false checkout -q -f FETCH_HEAD
git log -1 --format='    %h %s'
"""

# One session for all targets: what `make up` starts is there for `make down`, and nothing outlives the last of them.
_RUN = f"""
cd {CLONE}
failed=0
for target in $1; do
    printf '\\n== make %s\\n' "$target"
    began=$SECONDS
    make "$target" ${{2:+"TESTS=$2"}} 2>&1
    status=$?
    took="$(( (SECONDS - began) / 60 ))m$(( (SECONDS - began) % 60 ))s"
    if [ $status = 0 ]; then echo "make $target: passed after $took" >> /run/verdict
    else echo "make $target: FAILED after $took (status $status)" >> /run/verdict; failed=1; break; fi
done
printf '\\n== on a fresh machine\\n'
cat /run/verdict
exit $failed
"""


def main() -> int:
    """Run make targets on a Debian 12 machine that has nothing but its base system."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, help=f"of make; {' '.join(TARGETS)} if none is named")
    parser.add_argument("--tests", default="", help="only these tests, as pytest takes them")
    parser.add_argument("--keep", type=Path, help="a folder that the machine is left in, and found in the next time")
    given = parser.parse_args()
    if not is_root():
        print("a fresh machine needs root: it has namespaces and mounts of its own", file=sys.stderr)
        return 1
    shared = REPOSITORY.parent / "shared"
    shown = {shared: Path(CLONE).parent / "shared"} if shared.is_dir() else {}
    here = Here(Path("/"), Path.home(), os.environ)
    with tempfile.TemporaryDirectory(prefix="fresh-", dir="/var/tmp") as scratch:
        machine = FreshMachine((given.keep or Path(scratch) / "root").resolve(), here, shown)
        try:
            return _try(machine, given.targets, given.tests)
        finally:
            if given.keep:
                print(f"the machine is in {machine.root}")
            else:
                machine.remove()


def _try(machine: FreshMachine, targets: list[str], tests: str) -> int:
    began = time.monotonic()
    if machine.made:
        _say(f"the machine that was kept in {machine.root}")
    else:
        _say(f"Debian {SUITE}: the required packages, {', '.join(BASE)}")
        machine.make()
        _say(f"made in {time.monotonic() - began:.0f} s")
    _say("what is committed, cloned")
    if subprocess.run(["git", "-C", REPOSITORY, "diff", "--quiet", "HEAD"], check=False).returncode:
        _say("WITHOUT what was changed here and is not committed")
    bundle = machine.root / _BUNDLE.lstrip("/")
    subprocess.run(["git", "-C", REPOSITORY, "bundle", "create", "-q", str(bundle), "HEAD"], check=True)
    if status := machine.run(_FETCH):
        return status
    return machine.run(_RUN, " ".join(targets), tests)


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
