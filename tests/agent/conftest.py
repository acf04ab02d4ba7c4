"""An agent on this machine, and its controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess, agent_process
from fake_controller import Controller, controller


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Controller]:
    with controller(tmp_path / "site") as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, site: Controller) -> Iterator[AgentProcess]:
    with agent_process(tmp_path / "node") as process:
        process.start(site.boot())
        site.wait(lambda: site.exchanges)
        yield process
