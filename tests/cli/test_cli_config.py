"""``strata config`` on a repository, without a service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strata.cli import main
from support.site_repository import small_site

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of repositories that were read: not in the cache of whoever runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main.run(["config", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_starter_repository_is_written_once_and_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = str(tmp_path / "site")
    assert run(capsys, "init", site, "--system", "prod")[0] == 0
    code, said, _ = run(capsys, "check", site, "--json")
    assert (code, json.loads(said)["nodes"], json.loads(said)["system"]) == (0, 4, "prod")
    code, _, error = run(capsys, "init", site)
    assert code == 3 and "is there already" in error, "nothing of what is there is written over"


def test_what_is_wrong_ends_the_check_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("kind: node\nname: n1\nnid: lots\n", encoding="utf-8")
    code, _, error = run(capsys, "check", str(tmp_path))
    assert code == 1
    assert f"{tmp_path}: is not a site repository (no folder .strata, systems, site or vendor)" in error
    assert "a.yaml, line 3, column 6: nid" in error
    (tmp_path / "site").mkdir()
    assert "not a site repository" not in run(capsys, "check", str(tmp_path))[2]
    code, _, error = run(capsys, "check", str(tmp_path / "nowhere"))
    assert (code, "no such directory" in error) == (1, True)


def test_a_node_is_explained_from_a_commit_with_the_commit_in_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = small_site(tmp_path / "site")
    head = site.git("rev-parse", "HEAD")
    site.write({"site/nodes.yaml": "kind: nodes\nnodes: n1\nrole: login\n"})
    where = str(site.directory)
    _, said, _ = run(capsys, "show", "n1", where, "--commit", head[:10], "--explain", "--json")
    found = {one["field"]: one for one in json.loads(said)}
    assert found["role"]["value"] == "compute"
    assert found["role"]["place"] == f"{head[:12]}:site/nodes.yaml, line 2, column 7"
    _, said, _ = run(capsys, "show", "n1", where, "--json")
    assert {one["field"]: one["value"] for one in json.loads(said)}["role"] == "login"
    code, _, error = run(capsys, "show", "n9", where)
    assert code == 1 and "no such node: n9" in error
    assert run(capsys, "check", where, "--branch", "main", "--commit", head)[0] == 2


def test_the_schema_is_one_that_editors_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = run(capsys, "schema")
    found = json.loads(said)
    assert code == 0 and found["$schema"].startswith("https://json-schema.org/")
    assert all(one["$ref"].removeprefix("#/$defs/") in found["$defs"] for one in found["anyOf"])
