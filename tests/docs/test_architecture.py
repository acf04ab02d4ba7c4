"""The source tree is as the architecture page says: small folders, and files where it says that they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_support import PAGES, ROOT

import strata

SOURCES = Path(strata.__file__).parent
MOST = 25
"""Modules side by side in one folder: more is a folder that wants folders."""
NAMED = re.compile(r"`(?:src/strata/)?([a-z_]+/[a-z_/]+\.py)`")


def test_no_folder_has_more_modules_than_can_be_taken_in_at_a_glance() -> None:
    folders: dict[str, int] = {}
    for module in SOURCES.rglob("*.py"):
        folder = str(module.parent.relative_to(SOURCES))
        folders[folder] = folders.get(folder, 0) + 1
    assert len(folders) > 20
    assert {folder: count for folder, count in folders.items() if count > MOST} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    layers = {folder.name for folder in SOURCES.iterdir()}
    named = [path for path in NAMED.findall(page.read_text()) if path.partition("/")[0] in layers]
    assert [path for path in named if not (SOURCES / path).is_file()] == []
