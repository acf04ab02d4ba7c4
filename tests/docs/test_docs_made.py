"""What is made from the code says what the code has: metrics, ports, diagrams, the manual page."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from docs_support import DOCS

from strata.core.model import Model
from strata.core.state import STATES
from strata.daemon.layers import LAYERS
from strata.fleet.access.principal import ROLES
from strata.fleet.metrics import Metrics

REFERENCE = DOCS / "reference"
REQUESTS = {".TH", ".SH", ".SS", ".TP", ".B", ".I", ".BR", ".RI", ".IR", ".nf", ".fi"}


def test_every_metric_that_the_service_shows_is_on_the_page_with_its_kind() -> None:
    rows = re.findall(r"^\| `(strata_\w+)` \| (\w+) \|", (REFERENCE / "metrics.md").read_text(), re.MULTILINE)
    shown = re.findall(r"^# TYPE (\S+) (\w+)", Metrics().exposition().decode(), re.MULTILINE)
    assert len(shown) > 10
    assert {found for found in shown if not found[0].endswith("_created")} <= set(rows)


def test_every_state_of_a_node_is_explained() -> None:
    section = (DOCS / "explanation" / "the-loop.md").read_text().partition("## The state of a node")[2]
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    assert sorted(state for row in rows for state in re.findall(r"`(\w+)`", row)) == sorted(STATES)


def test_the_page_on_ports_has_every_role() -> None:
    page = (REFERENCE / "ports.md").read_text()
    assert [role for role in ROLES if f"| `{role}` |" not in page] == []


def test_the_diagram_of_the_model_has_every_variable_and_mutation() -> None:
    drawing = (DOCS / "pictures" / "built-in-model.svg").read_text()
    model = Model.of(*(layer.model for layer in LAYERS))
    words = set(re.findall(r"[\w&#;-]+", drawing.replace("&#45;", "-")))
    assert [name for name in (*model.variables, *model.mutations) if name not in words] == []


@pytest.mark.slow
def test_the_manual_page_has_every_command_and_nothing_that_troff_would_take_for_a_request() -> None:
    made = subprocess.run([sys.executable, str(DOCS / "manual.py")], capture_output=True, text=True, check=True).stdout
    requests = {line.split(" ")[0] for line in made.splitlines() if line.startswith((".", "'"))}
    assert requests - {'.\\"'} <= REQUESTS
    titles = set(re.findall(r"^\.SS (.+)$", made, re.MULTILINE))
    commands = set(re.findall(r"^###? (strata .+)$", (REFERENCE / "cli.md").read_text(), re.MULTILINE))
    assert {title.replace("\\-", "-") for title in titles} == commands
    assert len(commands) > 150
