"""What the documentation shows is what happens: its commands run on machines of their own, where nodes boot, and where
nothing runs yet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_desk import Desk, Machine, Site, sitting_at
from docs_support import run_beside

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a machine of its own"),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Desk]:
    yield from sitting_at(Site)


@pytest.mark.parametrize("page", run_beside(Site.service), ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_says_where_nodes_boot(site: Desk, page: Path) -> None:
    site.up()
    site.page(page)


@pytest.mark.parametrize("page", run_beside(Machine.service), ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_says_on_a_machine_where_nothing_runs_yet(page: Path) -> None:
    for machine in sitting_at(Machine):
        machine.page(page)
