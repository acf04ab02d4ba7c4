"""What the page on adding to Strata shows is whole: each example is a folder and a line, and then it works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_support import DOCS, ROOT

PAGE = DOCS / "how-to" / "add-to-strata.md"
EXAMPLES = DOCS / "how-to" / "examples" / "add"
SAYS = {
    "bmc-protocol": r"pdu-n1 +.*power=on",
    "variable": r"^disk-n\[1-2\]$",
    "resource": r"note-n1 +fan 3 rattles[\s\S]*note\.put",
    "power-rule": r"night: \{cap: 220W\}",
}
"""Example → what running it prints."""


class Extended:
    """A copy of the sources with all examples in it, and a service that runs it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copytree(ROOT / "src" / "strata", directory / "strata", ignore=shutil.ignore_patterns("__pycache__"))
        (directory / "bin").mkdir()
        for name, arguments in (("strata", "-m strata.cli"), ("python", "")):
            binary = directory / "bin" / name
            binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
            binary.chmod(0o755)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")} | {
            "PATH": f"{directory / 'bin'}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(directory),
            "STRATA_STATE": str(directory / "s"),
        }
        for name in SAYS:
            shutil.copytree(EXAMPLES / name / "strata", directory / "strata", dirs_exist_ok=True)
        for name, after, added in lines():
            file = directory / name
            text = file.read_text(encoding="utf-8")
            assert text.count(f"{after}\n") == 1, f"{name} has not one line {after!r}"
            file.write_text(text.replace(f"{after}\n", f"{after}\n{added}\n"), encoding="utf-8")

    def run(self, example: str) -> str:
        """What trying an example printed; it must end well."""
        ran = subprocess.run(
            ["bash", "-e", "try.sh"],
            cwd=shutil.copytree(EXAMPLES / example, self.directory / example),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def lines() -> list[tuple[str, str, str]]:
    """File, line that is there, and line to add after it, as the page shows them."""
    return re.findall(r"```diff\n--- (\S+)\n (.*)\n\+(.*)\n```", PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def extended() -> Iterator[Extended]:
    directory = Path(tempfile.mkdtemp(prefix="add-"))  # short: a unix socket is in it
    made = Extended(directory)
    log = (directory / "log").open("w")
    service = subprocess.Popen(
        [directory / "bin" / "strata", "serve", "hardware", "power", "scratch", "--no-tls"],
        env=made.environment,
        stdout=log,
        stderr=log,
    )
    try:
        deadline = time.monotonic() + 60
        while subprocess.run(
            [directory / "bin" / "strata", "status"], env=made.environment, capture_output=True
        ).returncode:
            assert service.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()
            time.sleep(0.1)
        yield made
    finally:
        service.terminate()
        service.wait(30)
        log.close()
        shutil.rmtree(directory)


def test_every_example_is_one_folder_and_one_line() -> None:
    assert sorted(SAYS) == sorted(folder.name for folder in EXAMPLES.iterdir())
    assert len(lines()) == len(SAYS)
    for name in SAYS:
        places = {file.parent for file in (EXAMPLES / name / "strata").rglob("*.py")}
        assert len(places) == 1, f"{name} is in {places}"


@pytest.mark.parametrize("name", SAYS)
def test_the_page_shows_what_is_run(name: str) -> None:
    assert f"```text\n{(EXAMPLES / name / 'try.sh').read_text(encoding='utf-8')}```" in PAGE.read_text(encoding="utf-8")


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_an_example_works_in_a_service_that_has_it(extended: Extended, name: str) -> None:
    assert re.search(SAYS[name], extended.run(name), re.MULTILINE)
