"""What ``make test`` says of tests that fail always, and of tests that fail only beside others."""

from collections.abc import Callable
from pathlib import Path

import pytest

import whole

Run = Callable[..., tuple[int, str]]
RACE = """
from pathlib import Path

def test_race():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_sound():
    pass
"""
BROKEN = """
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_broken(n):
    assert False
"""

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the tests of one file as ``make test`` would, but for the workers; the exit status and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(whole, "TOGETHER", ())
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run_source(source: str, *words: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(source)
        return whole.main(words), capfd.readouterr().out

    return run_source


def test_what_fails_beside_others_and_passes_alone_is_named(run: Run) -> None:
    status, printed = run(RACE)
    assert status == 0, printed
    assert "unsteady: 1 failed beside others" in printed
    assert printed.rstrip().endswith("test_it.py::test_race")


def test_what_passes_only_alone_fails_a_steady_run(run: Run) -> None:
    status, printed = run(RACE, "--steady")
    assert status == 1
    assert "alone" not in printed


def test_what_fails_twice_has_failed(run: Run) -> None:
    status, printed = run(BROKEN.format(count=2))
    assert status == 1
    assert "2 failed beside the others; once more" in printed
    assert "unsteady" not in printed


def test_many_failures_are_not_left_to_a_second_run(run: Run) -> None:
    status, printed = run(BROKEN.format(count=9))
    assert status == 1
    assert "once more" not in printed


def test_a_file_that_cannot_be_read_has_failed(run: Run) -> None:
    status, printed = run("import nothing_of_that_name")
    assert status != 0
    assert "unsteady" not in printed
