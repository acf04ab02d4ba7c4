"""``make setup`` installs what is missing, whatever else is there already. dpkg and apt are stand-ins here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fresh.programs import REPOSITORY, named_in_makefile

MAKEFILE = REPOSITORY / "Makefile"
NATIVE = "src/strata/jobs/native"
NAMED = named_in_makefile(MAKEFILE.read_text(encoding="utf-8"))

DPKG_QUERY = """#!/bin/sh
# Says of each package that is asked for whether it is in the file, as dpkg-query does.
shift 2
for package in "$@"; do
    state=$(sed -n "s/^$package //p" "$STATES")
    if [ -n "$state" ]; then echo "$state $package"; else echo "no packages found matching $package" >&2; bad=1; fi
done
exit ${bad:-0}
"""
APT_GET = """#!/bin/sh
echo "$*" >> "$ASKED"
case "$*" in *install*) ls "$NO_START" >> "$ASKED"; exit ${FAILS:-0};; esac
"""


class Machine:
    """A folder with our Makefile, on a machine that has some packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._states, self._asked = folder / "states", folder / "asked"
        self.no_start = folder / "policy-rc.d"
        (folder / "bin").mkdir()
        for name, text in (("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        for name in ("Makefile", "pyproject.toml", "requirements.lock"):
            shutil.copy(REPOSITORY / name, folder)
            os.utime(folder / name, (1000, 1000))
        shutil.copytree(REPOSITORY / NATIVE, folder / NATIVE, ignore=shutil.ignore_patterns("built"))
        (folder / NATIVE / "built").mkdir()
        for name in ("strata-run", "strata-grid-engine", "strata_spank.so"):
            (folder / NATIVE / "built" / name).touch()
        (folder / ".venv").mkdir()
        (folder / ".venv/.ready").touch()
        web = folder / "src/strata/dashboard/web"
        (web / "node_modules").mkdir(parents=True)
        (folder / "src/strata/dashboard/static").mkdir()
        for name in ("package.json", "package-lock.json", "node_modules/.package-lock.json", "../static/index.html"):
            (web / name).touch()  # built already, and newer than what it is built from

    def has(self, **states: str) -> None:
        """All packages, but those that are said to be in another state; an empty one: never heard of."""
        every = dict.fromkeys(NAMED, "installed") | {name.replace("_", "-"): state for name, state in states.items()}
        self._states.write_text("".join(f"{name} {state}\n" for name, state in every.items() if state))

    def make(self, *arguments: str, user: str = "0", **more: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "bin/id").write_text(f"#!/bin/sh\necho {user}\n")
        (self.folder / "bin/id").chmod(0o755)
        files = {"STATES": self._states, "ASKED": self._asked, "NO_START": self.no_start}
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            **{name: str(path) for name, path in files.items()},
        }
        return subprocess.run(
            ["make", f"NO_START={self.no_start}", *arguments],
            cwd=self.folder, env={**environment, **more}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    @property
    def asked(self) -> list[str]:
        """What was asked of apt-get."""
        return self._asked.read_text().splitlines() if self._asked.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.slow
def test_where_all_packages_are_there_nothing_is_installed(machine: Machine) -> None:
    machine.has()
    done = machine.make("setup")
    assert (done.returncode, done.stderr, machine.asked) == (0, "", [])


@pytest.mark.slow
@pytest.mark.parametrize("state", ["", "config-files", "half-installed"])
def test_the_one_package_that_is_missing_is_installed_and_no_daemon_starts_with_it(
    machine: Machine, state: str
) -> None:
    machine.has(crun=state)
    done = machine.make("setup")
    assert done.returncode == 0, done.stderr
    assert machine.asked == ["-qq update", "-qq -y install --no-install-recommends crun", str(machine.no_start)]
    assert not machine.no_start.exists()


@pytest.mark.slow
def test_what_forbids_daemons_to_start_stays_if_it_was_there_and_goes_if_apt_fails(machine: Machine) -> None:
    machine.has(crun="", procps="")
    assert machine.make("setup", FAILS="100").returncode != 0
    assert not machine.no_start.exists()
    machine.no_start.touch()
    assert machine.make("setup").returncode == 0
    assert machine.no_start.exists()


@pytest.mark.slow
def test_without_root_it_says_what_to_install(machine: Machine) -> None:
    machine.has(crun="", radvd="")
    done = machine.make("setup", user="1000")
    assert done.returncode != 0
    assert "as root: apt-get install crun radvd" in done.stderr
    assert machine.asked == []


@pytest.mark.slow
def test_the_environment_is_made_again_when_the_makefile_has_changed(machine: Machine) -> None:
    machine.has()
    assert "pip" not in machine.make("--dry-run", "setup").stdout
    os.utime(machine.folder / "Makefile")
    os.utime(machine.folder / ".venv/.ready", (2000, 2000))
    assert "pip" in machine.make("--dry-run", "setup").stdout
