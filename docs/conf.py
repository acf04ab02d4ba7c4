"""How Sphinx makes a site of these pages: ``make docs``.

The pages are plain Markdown that reads as well without the site. So their order is not written in Sphinx's own words:
a page of ``CONTENTS`` is a table of contents, and each list of links in it becomes one. A page that is in none of them
is an orphan, and Sphinx, which takes warnings for errors here, does not build the site.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
CONTENTS = ("index", "decisions/README")
"""Pages whose lists of links are tables of contents."""
LONG = ("reference/cli", "reference/rest")
"""Pages with hundreds of headings: beside them stand those of the first rank only, in half the time."""

project = "Strata"
author = "Strata"
version = release = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser"]
exclude_patterns = ["how-to/examples"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
html_theme = "furo"
html_title = "Strata"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
suppress_warnings = ["misc.highlighting_failure"]  # a block may be of a kind that has no colours: csv
pygments_style = "default"
pygments_dark_style = "monokai"

_PARTS = re.compile(r"^(?:## (?P<caption>.+)|(?:-|\d+\.) \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+)\.md\))$", re.MULTILINE)

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./\w+\.md(?:#[^)]*)?\)")


def contents(text: str) -> str:
    """The tables of contents, in Sphinx's words, that the lists of links in a page amount to."""
    tables: list[tuple[str, list[str]]] = []
    for part in _PARTS.finditer(text):
        if part["caption"] or not tables:
            tables.append((part["caption"] or "", []))
        if part["page"]:
            tables[-1][1].append(f"{part['title']} <{part['page']}>")
    return "\n".join(
        "\n".join(("```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else ()), "", *pages, "```\n"))
        for caption, pages in tables
        if pages
    )


def within(text: str) -> str:
    """A page whose links to Markdown outside the site (the README, say) are just their words."""
    return _OUTSIDE.sub(r"\1", text)


def _as_site(app: Any, page: str, source: list[str]) -> None:
    source[0] = within(source[0])
    if page in CONTENTS:
        source[0] += "\n" + contents(source[0])


def _shorten(app: Any, document: Any) -> None:
    if (page := app.env.current_document.docname) in LONG:
        app.env.metadata[page]["tocdepth"] = 2


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", _shorten)
    app.connect("source-read", _as_site)
