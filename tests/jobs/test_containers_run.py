"""The same container by every runtime that Debian has, as somebody who is not root: the same comes of it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_support import USER, give, small_image, strata

from strata.jobs.containers.runtimes import RUNTIMES

HERE = ("native", "charliecloud", "bubblewrap", "podman", "runc", "udocker")
PROGRAM = """
pwd
echo "$TOLD|$FROM_IMAGE|$OUTSIDE"
cat /data/in
echo out > /data/out
touch /bin/new 2>/dev/null && echo written || echo read-only
touch /tmp/mine && rm /tmp/mine && echo tmp
echo "$HOME"
for word in "$@"; do echo "<$word>"; done
exit 7
"""

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The user's: with an image in a layout, which the first that wants it unpacks. Not in a folder of pytest's, which
    closes them to others whenever one starts."""
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory(prefix="containers-") as folder:
        made = Path(folder)
        made.chmod(0o755)
        small_image(made / "image")
        (made / "data").mkdir()
        (made / "data/in").write_text("in\n")
        yield give(made)


@pytest.mark.parametrize("runtime", HERE)
def test_the_same_request_gives_the_same_result_by_every_runtime(home: Path, runtime: str) -> None:
    (home / "data/out").unlink(missing_ok=True)
    done = strata(
        home,
        *("container", "run", f"oci:{home}/image", "--runtime", runtime, "--bind", f"{home}/data:/data"),
        *("--env", "TOLD=in words", "--", "/bin/sh", "-c", PROGRAM, "sh", "one two", "$HOME"),
        env={"OUTSIDE": "yes"},
    )
    assert done.returncode == 7, (done.stdout, done.stderr)
    can = RUNTIMES[runtime].abilities
    assert done.stdout.splitlines() == [
        "/etc",
        "in words|yes|yes",
        "in",
        "read-only" if can.read_only else "written",
        "tmp",
        "/",
        "<one two>",
        "<$HOME>",
    ]
    written = home / "data/out"
    assert written.read_text() == "out\n" and written.stat().st_uid == USER
    (root,) = (home / "containers/roots").glob("*/root")
    assert not (root / "bin/new").exists(), "the image is as it was, whoever wrote to what"
    left = [path for path in Path("/tmp").glob("strata-*") if path.lstat().st_uid == USER]
    assert not left, "nothing of the start is left"
    assert subprocess.run(["pgrep", "-u", str(USER)], capture_output=True).stdout == b"", "nor any process"


@pytest.mark.parametrize("runtime", HERE)
def test_a_container_is_its_user_and_can_begin_with_an_empty_environment(home: Path, runtime: str) -> None:
    command = ("container", "run", f"oci:{home}/image", "--runtime", runtime, "--clear-env", "--", "/bin/sh", "-c")
    done = strata(home, *command, 'id -u; echo "<$OUTSIDE>"', env={"OUTSIDE": "yes"})
    seen = {"own": str(USER), "root": "0"}[RUNTIMES[runtime].abilities.user]
    assert done.stdout.split() == [seen, "<>"], (done.stdout, done.stderr)


@pytest.mark.parametrize("runtime", [name for name in HERE if RUNTIMES[name].abilities.hides_devices])
def test_devices_that_were_not_given_are_not_there(home: Path, runtime: str) -> None:
    command = ("container", "run", f"oci:{home}/image", "--runtime", runtime, "--", "/bin/ls", "/dev")
    there = set(strata(home, *command).stdout.split())
    assert {"null", "zero", "urandom"} <= there and not {"kmsg", "mem", "fuse", "loop-control"} & there


def test_without_words_the_image_s_own_program_runs_and_what_is_not_there_says_what_installs_it(home: Path) -> None:
    done = strata(home, "container", "run", f"oci:{home}/image", "--runtime", "bubblewrap")
    assert done.stdout == "by itself\n", done.stderr
    refused = strata(home, "container", "run", f"oci:{home}/image", "--runtime", "apptainer", "true")
    assert (
        refused.returncode == 1 and "apptainer is not installed" in refused.stderr and "apptainer.org" in refused.stderr
    )
    relative = strata(home, "container", "run", f"oci:{home}/image", "--bind", "a:b", "true")
    assert relative.returncode == 1 and "binds[0].source: a path of a bind begins with '/'" in relative.stderr
