"""What is kept of files that were read: a shortcut that never changes what is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import BadRequest
from strata.platform.config import memory
from strata.platform.config.reading import read_repository

FILES = {
    "site/nodes.yaml": "kind: nodes\nnodes: [{name: n1, nid: 1}, {name: n2, nid: 2}]\n",
    "site/p.yaml": "kind: personality\nname: p\nmembers:\n"
    "  - {name: system, release: 'a:1', files: [{path: /etc/x, mode: 0600}]}\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        file = tmp_path / "repository" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path / "repository"


def test_only_files_that_changed_are_read_again_and_all_is_found_as_before(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_repository(site)
    read: list[str] = []
    really = memory.documents
    monkeypatch.setattr(memory, "documents", lambda text, source: read.append(source) or really(text, source))
    again = read_repository(site)
    assert again.configuration() == first.configuration()
    assert read == []
    assert again.explain("n2") == first.explain("n2"), "places are found by reading the file after all"
    (site / "site" / "nodes.yaml").write_text(FILES["site/nodes.yaml"].replace("n2", "n3"), encoding="utf-8")
    assert [entry.name for entry in read_repository(site).configuration().nodes] == ["n1", "n3"]
    assert read == ["site/nodes.yaml"]


def test_what_was_wrong_before_is_wrong_again_at_the_same_place(site: Path) -> None:
    (site / "site" / "bad.yaml").write_text("kind: node\nname: n1\n", encoding="utf-8")
    said = []
    for _ in range(2):
        with pytest.raises(BadRequest) as caught:
            read_repository(site).configuration()
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "site/nodes.yaml, line 2, column 9" in said[0]


@pytest.mark.parametrize("damage", [b"", b"\xff\xff", b"\x92\xa13\x80"])
def test_a_damaged_memory_is_no_memory(site: Path, own_cache: Path, damage: bytes) -> None:
    found = read_repository(site).configuration()
    (kept,) = own_cache.rglob("*.msgpack")
    kept.write_bytes(damage)
    assert read_repository(site).configuration() == found


def test_a_cache_that_cannot_be_written_is_done_without(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(read_repository(site).configuration().nodes) == 2
