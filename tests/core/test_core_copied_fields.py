"""What mypy says of views that are made of records (``Out.of``): the plugin in ``support/copied_fields.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mypy import api

from strata.core import texts

SOURCES = Path(texts.__file__).parents[2]
PLUGIN = Path(__file__).parents[1] / "support" / "copied_fields.py"
RECORDS = """
from typing import NamedTuple
import msgspec
from strata.core.texts import Out

class Record(msgspec.Struct):
    name: str
    @property
    def size(self) -> int:
        return len(self.name)

class Counted(NamedTuple):
    nodes: int

class View(Out, frozen=True, kw_only=True):
    name: str
    size: int

class Longer(View, frozen=True, kw_only=True):
    nodes: int

"""


CALLS = {
    "View.of(Record('a'))": "",
    "Longer.of(Record('a'), Counted(1))": "",
    "Longer.of(Record('a'), nodes=1)": "",
    "Longer.of(Record('a'))": '"nodes"',
    "View.of(Counted(1))": '"name", "size"',
}
"""Each, and the fields that no record of it has."""


@pytest.mark.slow
def test_a_field_that_no_record_has_is_found_before_anybody_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nplugins = {PLUGIN}\n")
    source = tmp_path / "views.py"
    source.write_text(RECORDS + "\n".join(CALLS))
    monkeypatch.setenv("MYPYPATH", str(SOURCES))
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache")]
    said, wrong, _ = api.run([*options, "--follow-imports=silent", "--python-executable", sys.executable, str(source)])
    assert not wrong
    first = source.read_text().splitlines().index(next(iter(CALLS))) + 1
    errors = [line.split(": error: ")[1] for line in said.splitlines() if ": error: " in line]
    places = [int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line]
    bad = [(number, missing) for number, missing in enumerate(CALLS.values(), first) if missing]
    assert places == [number for number, _ in bad], said
    assert all(f"has {missing} " in error for error, (_, missing) in zip(errors, bad, strict=True)), said
