"""``strata model``: offline, with files and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strata.cli.main import run

SITE = """
variables:
  power: [off, on]
  os: {values: [down, up], lost_when: {power: off}}
  image: {open: true}
mutations:
  power-on: {variable: power, from: off, to: on, cost: 30}
  power-off: {variable: power, from: on, to: off, cost: 20, guard: idle}
  boot: {variable: os, from: [down, unknown], to: up, requires: {power: on}, cost: 60}
  halt: {variable: os, from: up, to: down}
  load: {variable: image, from: [absent, other, unknown], to: wanted, requires: {os: up}, cost: 2.5}
guards: {idle: {}}
"""


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    return str(path)


def strata(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["model", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_plan_is_the_ordered_names_and_the_cost(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = strata(
        capsys, "plan", "--model", site, "--facts", "power=off,image=v1", "--desires", "os=up,image=v2", "--json"
    )
    assert code == 0
    assert json.loads(out) == {
        "status": "plan",
        "mutations": ["power-on", "boot", "load"],
        "cost": 92.5,
        "observe": [],
        "reason": "",
    }


def test_an_unreachable_goal_exits_with_3_and_the_reason(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("plan", "--model", site, "--facts", "power=on", "--desires", "power=off", "--deny", "idle")
    code, out, _ = strata(capsys, *arguments, "--json")
    assert code == 3
    assert json.loads(out)["status"] == "unreachable"
    assert json.loads(out)["reason"].startswith("guard idle forbids power-off")
    code, out, _ = strata(capsys, *arguments)
    assert code == 3
    assert out.startswith("unreachable: guard idle")


def test_either_of_two_desired_values_will_do(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = strata(capsys, "plan", "--model", site, "--facts", "power=off", "--desires", "power=on|off")
    assert (code, out) == (0, "done: the goal holds\n")


def test_unknown_facts_are_to_be_looked_at_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = strata(capsys, "plan", "--facts", "workload=out", "--desires", "os=up", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["status"] == "observe"
    assert plan["observe"][:2] == ["power", "os"]
    assert plan["mutations"] == ["power-off", "power-on", "boot"]
    code, out, _ = strata(capsys, "plan", "--facts", "power=on", "--desires", "os=up", "--looked", "os", "--json")
    assert json.loads(out)["status"] == "plan"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--facts", "power"), 2, "VARIABLE=VALUE"),
        (("--facts", "power=on,power=off"), 2, "twice"),
        (("--facts", "power=of"), 1, "'of' is not one of off, on"),
        (("--desires", "pwr=on"), 1, "no such state variable"),
        (("--deny", "nope"), 1, "no such guard"),
        (("--looked", "nope"), 1, "no such state variable"),
        (("--model", "/nonexistent.yaml"), 2, "does not exist"),
    ],
)
def test_wrong_input_is_one_line_with_the_reason(
    arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, err = strata(capsys, "plan", *arguments)
    assert found == code
    assert said in err
    assert "Traceback" not in err


def test_a_sound_model_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = strata(capsys, "check")
    assert code == 0
    assert out.endswith("0 errors, 0 warnings, 6 notes\n")


def test_errors_of_a_model_are_listed_and_exit_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(SITE.replace("{values: [down, up], lost_when: {power: off}}", "[down, up, stuck]"))
    code, out, _ = strata(capsys, "check", str(path))
    assert code == 1
    assert "error: variable os: os=stuck is a dead end" in out
    code, out, _ = strata(capsys, "check", str(path), "--json")
    assert code == 1
    report = json.loads(out)
    assert report["ok"] is False
    assert {finding["code"] for finding in report["findings"]} >= {"unreachable-value", "dead-end"}


def test_a_file_that_is_no_model_is_a_finding_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("variables: {a: {valus: [x]}}")
    code, out, _ = strata(capsys, "check", str(path), "--json")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert finding["code"] == "invalid"
    assert "did you mean 'values'?" in finding["text"]


def test_a_site_file_builds_on_the_built_in_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "extends: built-in\n"
        "variables: {led: {values: [dark, lit], observer: led}}\n"
        "mutations: {lamp: {variable: led, from: dark, to: lit, requires: {power: on}, driver: led}}\n"
        "drivers: {led: {exec: [/usr/local/sbin/led]}}\n"
    )
    assert strata(capsys, "check", str(path))[0] == 0
    _, out, _ = strata(capsys, "plan", "--model", str(path), "--facts", "power=off,led=dark", "--desires", "led=lit")
    assert "power-on" in out
    assert "lamp" in out


def test_the_graph_goes_to_the_screen_or_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = strata(capsys, "graph")
    assert code == 0
    assert out.startswith("digraph model {")
    target = tmp_path / "model.dot"
    assert strata(capsys, "graph", "-o", str(target))[0] == 0
    assert target.read_text() == out
    assert strata(capsys, "graph", "-o", str(tmp_path / "no" / "model.dot"))[0] == 1
    assert strata(capsys, "graph", "-o", str(tmp_path / "model.png"))[0] == 2


def test_show_lists_every_declaration(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = strata(capsys, "show", site)
    assert "variable image: any value" in out
    assert "mutation boot: os: down|unknown -> up, needs power=on, cost 60" in out
    _, out, _ = strata(capsys, "show", site, "--json")
    assert json.loads(out)["mutations"]["boot"]["to"] == "up"


@pytest.mark.slow
def test_planning_offline_loads_neither_numpy_nor_the_service() -> None:
    code = (
        "import sys; from strata.cli.main import run; run(['model', 'plan', '--facts', 'power=off', '--desires',"
        " 'power=on']); print({'numpy', 'rich', 'litestar', 'ClusterShell'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("implies", "words"),
    [
        ("{up: {fuel: on}}", "no such variable: fuel"),
        ("{up: {power: high}}", "power has no value 'high'"),
        ("{up: {power: off}}", "os is lost when power is that"),
        ("{up: {image: absent}}", "os outlives image=other"),
        ("{up: {os: up}}", "in a circle"),
    ],
)
def test_check_refuses_an_implication_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], implies: str, words: str
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE.replace("lost_when: {power: off}}", f"lost_when: {{power: off}}, implies: {implies}}}"))
    code, out, _ = strata(capsys, "check", str(path))
    assert code == 1
    assert f"error: {path}: variable os" in out and words in out


def test_show_tells_what_a_value_implies(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = strata(capsys, "show")
    assert "variable os: down up hung, seen by node, lost when power=off, up implies power=on" in out
