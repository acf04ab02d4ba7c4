"""A fake service and a way to run one command line against it, in this process."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Result, Run
from fake_server import FakeServer

from strata.cli import main


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        yield Path(name)


@pytest.fixture
def server(short_dir: Path) -> Iterator[FakeServer]:
    with FakeServer(short_dir / "admin.sock") as fake:
        yield fake


@pytest.fixture(autouse=True)
def by_itself(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command reaches a service that happens to run on this machine: the state directory is that of the test, and
    of its fake service if it has one."""
    for name in [name for name in os.environ if name.startswith("STRATA_")] + ["NO_COLOR"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRATA_STATE", str(short_dir))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``strata ARGUMENTS``."""

    def go(*arguments: object, stdin: str = "") -> Result:
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.run([str(argument) for argument in arguments])
        return Result(code, out.getvalue(), err.getvalue())

    return go
