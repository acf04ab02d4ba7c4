"""``strata plan`` and ``strata apply`` of a site repository, and of everything else beside one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Run
from fake_server import FakeServer

from strata.platform.config.commands import config


class Repository:
    """A site repository that is no more than its mark, and who was asked about it."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        (directory / ".strata").mkdir(parents=True)
        self.asked: list[tuple[str, Path, str, str]] = []
        for name in ("plan", "apply"):
            monkeypatch.setattr(config.commands[name], "callback", self._note(name))

    def _note(self, name: str) -> Callable[..., None]:
        def callback(*, directory: Path, branch: str, commit: str, **_: object) -> None:
            self.asked.append((name, directory, branch, commit))

        return callback


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    return Repository(tmp_path / "site", monkeypatch)


def test_a_repository_is_planned_and_applied_by_the_words_that_people_try_first(
    server: FakeServer, run: Run, site: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, here = site.directory, Path()
    monkeypatch.chdir(where.parent)
    for words in (
        ("plan", "site"),
        ("plan", where, "--branch", "new-rack"),
        ("plan", "site", "--commit=1a2b"),
        ("apply", "site"),
        ("apply", f"{where}/", "--dry-run"),
    ):
        assert run(*words).code == 0
    site_ = Path("site")
    assert site.asked == [
        ("plan", site_, "", ""),
        ("plan", where, "new-rack", ""),
        ("plan", site_, "", "1a2b"),
        ("apply", site_, "", ""),
        ("plan", where, "", ""),
    ]
    site.asked.clear()
    monkeypatch.chdir(where)
    said = run("plan")
    assert said.code == 0 and said.err == f"the repository in {where}\n", "nobody takes it for a plan of the fleet"
    assert run("apply", "--wait").code == run("plan", "--branch", "main").code == 0
    assert site.asked == [("plan", here, "", ""), ("apply", here, "", ""), ("plan", here, "main", "")]
    assert server.requests == []


def test_nodes_and_files_are_planned_and_applied_as_ever_beside_a_repository(
    server: FakeServer, run: Run, site: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n1").mkdir()  # a folder that is called as a node, and is no repository
    file = tmp_path / "d.yaml"
    file.write_text("kind: desire\nname: d\nselect: '*'\nset: {power: on}\n")
    assert run("plan").code == run("plan", "n1", "power=on").code == run("plan", "-f", file).code == 0
    monkeypatch.chdir(site.directory)
    assert run("plan", "*").code == run("apply", "-f", file).code == 0
    assert [path for _, path, *_ in server.requests] == ["/v1/plan"] * 4 + ["/v1/apply"]
    assert run("plan", "--help").out.startswith("Usage: strata plan ")
    assert site.asked == []


def test_what_is_neither_a_repository_nor_a_file_that_was_named_as_one_is_told_apart(
    server: FakeServer, run: Run, site: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "name a repository (strata apply site) or files" in run("apply").err
    monkeypatch.undo()
    assert "nowhere: no such directory" in run("plan", f"{tmp_path}/nowhere/").err
    monkeypatch.chdir(tmp_path)
    assert "d.yaml is not a site repository; to apply files: strata apply -f d.yaml" in run("apply", "d.yaml").err
    (tmp_path / "d.yaml").touch()
    assert "d.yaml is a file, not a site repository" in run("apply", "d.yaml").err
    (site.directory / "systems").mkdir()
    assert f"as a site repository: strata apply {site.directory}" in run("apply", "-f", site.directory).err
    assert server.requests == [] and site.asked == []
