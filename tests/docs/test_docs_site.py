"""The pages as a site: every page is in it, every link leads somewhere, and it loads nothing that is not its own."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from docs_support import DOCS, PAGES, ROOT

LOADED = re.compile(
    r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"([^\"]+)\"|url\(([^)]+)\)|@import ([^;]+)"
)


def conf() -> ModuleType:
    """The site's configuration, as Sphinx reads it."""
    spec = importlib.util.spec_from_file_location("site_conf", DOCS / "conf.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(pages: Path, into: Path, builder: str = "html") -> subprocess.CompletedProcess[str]:
    """What building the site said; as ``make docs`` does it."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, str(pages), str(into)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)


def small(folder: Path, index: str) -> Path:
    """A site with our configuration and two pages: its index, and ``page.md`` with the heading ``There``."""
    (folder / "docs").mkdir()
    shutil.copy(DOCS / "conf.py", folder / "docs")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "docs" / "index.md").write_text(index, encoding="utf-8")
    (folder / "docs" / "page.md").write_text("# A page\n\n## There\n", encoding="utf-8")
    return folder / "docs"


def test_every_page_is_in_one_table_of_contents_once() -> None:
    contents = conf().CONTENTS
    listed = [
        (DOCS / page).parent / link.partition("#")[0]
        for page in contents
        for link in re.findall(r"^(?:-|\d+\.) \[[^\]]+\]\(([^)]+)\)$", (DOCS / f"{page}.md").read_text(), re.MULTILINE)
    ]
    pages = {page for page in DOCS.rglob("*.md") if "examples" not in page.parts} - {DOCS / "index.md"}
    assert sorted(page.resolve() for page in listed) == sorted(pages)


def test_a_list_of_links_is_a_table_of_contents() -> None:
    text = "# All\n\n[not this](x.md)\n\n## Learn\n\n- [One](a/one.md)\n- [Two](two.md)\n\n## Empty\n"
    assert conf().contents(text) == "```{toctree}\n:hidden:\n:caption: Learn\n\nOne <a/one>\nTwo <two>\n```\n"


def test_a_link_out_of_the_site_is_just_its_words() -> None:
    text = "[the README](../../README.md#try-it), [here](../reference/cli.md)"
    assert conf().within(text) == "the README, [here](../reference/cli.md)"


def test_every_picture_is_in_some_page() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [path.name for path in (DOCS / "pictures").iterdir() if f"pictures/{path.name})" not in shown] == []


@pytest.mark.slow
def test_a_page_that_is_lost_or_a_link_that_is_broken_fails_the_build(tmp_path: Path) -> None:
    index = "# All\n\n[A page](page.md) is not in a list.\n\n[Gone](gone.md)\n\n[Gone, too](page.md#gone)\n"
    built = build(small(tmp_path, index), tmp_path / "site", "dummy")
    assert built.returncode != 0
    assert "page.md: WARNING: document isn't included in any toctree" in built.stderr
    assert re.search(r"index\.md:5: WARNING: .*target not found: 'gone\.md'", built.stderr), built.stderr
    assert re.search(r"index\.md:7: WARNING: local id not found .*'gone'", built.stderr), built.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_site_is_built_without_a_warning_and_loads_only_its_own_files(tmp_path: Path) -> None:
    built = build(DOCS, tmp_path)
    assert built.returncode == 0, built.stderr
    pages = {page.with_suffix("").relative_to(DOCS) for page in DOCS.rglob("*.md") if "examples" not in page.parts}
    html = {path.with_suffix("").relative_to(tmp_path) for path in tmp_path.rglob("*.html")}
    assert pages <= html
    for path in [*tmp_path.rglob("*.html"), *(tmp_path / "_static").rglob("*.css")]:
        for loaded in ("".join(found).strip("\"' ") for found in LOADED.findall(path.read_text(encoding="utf-8"))):
            assert not re.match(r"(https?:)?//", loaded), f"{path.relative_to(tmp_path)} loads {loaded}"
    index = (tmp_path / "searchindex.js").read_text(encoding="utf-8")
    assert '"reference/glossary"' in index and "tutorial/first-fleet" in index
