"""Searching console logs: newest first, within limits, and whatever pattern somebody types."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import BadRequest
from strata.hardware.consoles.search import ConsoleSearch
from strata.hardware.consoles.writer import ConsoleLimits, ConsoleWriter

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = ConsoleWriter(tmp_path, ConsoleLimits(segment=3000))
    for node in ("n1", "n2", "n3"):
        for place in range(100):
            writer.write(node, [(1000.0 + place, "serial", f"{node} says {place} times hello")])
    writer.write("n2", [(2000.0, "serial", "Kernel panic - not syncing: oh no")])
    writer.write("n3", [(3000.0, "serial", "a" * 40 + "!")])
    return tmp_path


async def test_lines_are_found_in_any_node_newest_first(root: Path) -> None:
    search = ConsoleSearch(root)
    hits = await search.find(["n1", "n2", "n3", "absent"], "KERNEL PANIC")
    assert [(node, line.text) for node, line in hits.lines] == [("n2", "Kernel panic - not syncing: oh no")]
    assert hits.whole
    hits = await search.find(["n1", "n2"], "hello", limit=3)
    assert [line.time for _, line in hits.lines] == [1099.0, 1099.0, 1098.0]
    assert not hits.whole
    assert (await search.find(["n1"], "n2 says")).lines == ()


async def test_regular_expressions_and_times_narrow_it(root: Path) -> None:
    search = ConsoleSearch(root)
    hits = await search.find(["n1"], r"says [0-4]\d? times", regex=True, since=1003, until=1041, limit=1000)
    assert [line.time for _, line in hits.lines] == sorted((*range(1010, 1042), 1003, 1004), reverse=True)
    with pytest.raises(BadRequest, match="not a pattern"):
        await search.find(["n1"], "(unclosed", regex=True)


async def test_a_wicked_pattern_is_stopped_and_what_was_found_is_kept(root: Path) -> None:
    search = ConsoleSearch(root, budget=3.0)
    hits = await search.find(["n2", "n3"], r"Kernel panic|^(a+)+$", regex=True)
    assert [node for node, _ in hits.lines] == ["n2"]
    assert not hits.whole


async def test_names_are_not_paths(root: Path) -> None:
    hits = await ConsoleSearch(root / "00").find(["../n1"], "hello")
    assert hits.lines == ()
