"""``strata power simulate``: offline, with files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fake_server
import pytest
from fake_server import Call, FakeServer

from strata.cli.main import run

POLICY = "name: site\nlimit: 15kW\nover-provisioned: {mood: aggressive}\n"


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "site.yaml"
    path.write_text(POLICY)
    return str(path)


def simulate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["power", "simulate", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_the_policy_is_compared_with_what_is_done_without_one(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = simulate(capsys, "--policy", policy, "--nodes", "60", "--days", "0.1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["RUN", "JOBS/DAY"]
    assert [line.split("  ")[0] for line in lines[1:5]] == ["site", "no policy", "static 250 W", "uncapped, 37 nodes"]
    assert lines[1].endswith("never") and not lines[2].endswith("never")
    assert [line.split(":")[0] for line in lines[5:]] == [
        "Against no policy",
        "Against static 250 W",
        "Against uncapped, 37 nodes",
    ]


@pytest.mark.slow
def test_only_the_service_of_the_state_directory_is_told(
    policy: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[dict[str, object]] = []

    def simulated(_: FakeServer, call: Call) -> dict[str, object]:
        told.append(call.body)
        return {}

    route = ("POST", "/v1/power/simulations", "", simulated)
    monkeypatch.setattr(fake_server, "ROUTES", [*fake_server.ROUTES, route])
    asked = ("--policy", policy, "--nodes", "60", "--days", "0.1", "--alone")
    assert simulate(capsys, *asked)[0] == 0
    assert [one["text"] for one in told] == [POLICY]
    monkeypatch.setenv("STRATA_STATE", str(Path(policy).parent))
    assert simulate(capsys, *asked)[0] == 0
    assert len(told) == 1


@pytest.mark.slow
def test_programs_get_all_figures(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--policy",
        policy,
        "--nodes",
        "60",
        "--days",
        "0.1",
        "--json",
        "--limit",
        "12kW",
        "--die-after",
        "30m",
    )
    code, out, _ = simulate(capsys, *arguments, "--alone")
    found = json.loads(out)
    assert code == 0
    assert (found["nodes"], found["limit_w"], len(found["runs"])) == (60, 12000.0, 1)
    assert found["runs"][0]["over_limit_s"] == 0 and 0 < found["runs"][0]["peak_w"] <= 12000
    assert simulate(capsys, *arguments, "--alone")[1] == out, "the same seed, the same day"


@pytest.mark.slow
def test_a_recorded_trace_and_standard_input_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.txt"
    trace.write_text("Submit|ElapsedRaw|NNodes|ConsumedEnergyRaw\n0|600|4|600000\n10|600|4|600000\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(POLICY))
    code, out, _ = simulate(
        capsys, "--policy", "-", "--trace", str(trace), "--nodes", "10", "--days", "0.1", "--json", "--alone"
    )
    assert code == 0
    assert (json.loads(out)["jobs"], json.loads(out)["runs"][0]["jobs"]) == (2, 2)


@pytest.mark.slow
def test_where_no_job_fits_under_the_limit_none_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hot.yaml"
    path.write_text("nodes: {idle: 300W, low: 300W, boot: 400W, high: 400W}")
    code, out, _ = simulate(
        capsys, "--policy", str(path), "--nodes", "10", "--limit", "3001W", "--days", "0.1", "--alone"
    )
    assert code == 0
    name, done, *_ = out.splitlines()[1].split()
    assert (name, done) == ("policy", "0")


@pytest.mark.parametrize(
    ("arguments", "text", "says"),
    [
        ((), "cap: 250W", "the policy has no limit (say it there, or with --limit 2MW)"),
        (("--limit", "2XW"), "", "'2XW' is not a power such as 250W"),
        (("--limit", "1kW"), "", "--limit: 1000 idle nodes draw 50000 W already"),
        (("--die-after", "noon"), "limit: 1MW", "'noon' is not a length of time"),
        ((), "limt: 3", "unknown key 'limt'; did you mean 'limit'?"),
        (("--nodes", "0"), "limit: 3", "0 is not in the range"),
    ],
)
def test_wrong_input_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str, says: str
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    code, out, err = simulate(capsys, "--policy", str(path), *arguments)
    assert code in (1, 2) and out == ""
    assert says in err
