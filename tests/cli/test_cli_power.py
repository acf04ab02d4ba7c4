"""``strata energy`` against a fake service: what is drawn, who used it, what is told of jobs."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import fake_server
import numpy as np
import pytest
from cli_support import Run
from fake_server import Call, FakeServer

from strata.core.errors import BadRequest
from strata.power.accounting.sacct import read
from strata.power.telemetry import plot as draw

Json = dict[str, Any]
TROUBLE = {"gaps": 0, "resets": 0, "wraps": 0, "absurd": 0, "stuck": 0}
SPREAD = {
    "least": 90.0, "average": 100.0, "most": 110.0, "deviation": 10.0, "least_node": "n1", "most_node": "n2",
}  # fmt: skip


def part(name: str, now: float | None, measured: int = 4) -> Json:
    return {
        "name": name, "nodes": 4, "measured": measured, "now": now, "least": now, "average": now, "most": now,
    }  # fmt: skip


def node(name: str, power: float | None, **more: Any) -> Json:
    base = {"time": 1.7e9, "energy": 7.2e6, "accel_power": None, "temperature": 55.0, "cap": 0.0}
    return {"node": name, "power": power, **base, **more}


def a_job(**more: Any) -> Json:
    return {
        "drawn": [
            {"minutes": minutes, "least": 100.0, "average": 150.0, "most": 200.0} for minutes in (0, 60, 30, 15, 1)
        ],
        "allocated": 9e6,
        "job": "7", "apid": "", "user": "ada", "name": "cfd", "nodeset": "n[1-2]", "nodes": 2, "start": 1.7e9,
        "end": 1.7e9 + 3600, "runs": 1, "seconds": 3600.0, "suspended": 0.0, "joules": 7.2e6, "known": 1.0,
        "error": 3.6e4, "average": 2000.0, "peak": 2400.0, "energy": SPREAD, "power": SPREAD, "highest": SPREAD,
        "unmeasured": 0, "trouble": TROUBLE, "doubt": "", "applications": [],
        "each": [
            {"node": "n2", "joules": 3.6e6, "average": 1000.0, "peak": 1200.0, "known": 0.5, "counted": True,
             "trouble": TROUBLE | {"gaps": 3}}
        ],
        "earlier": {
            "runs": 3, "average": 900.0, "joules_per_node": 3.0e6, "seconds": 3000.0, "average_change": 0.11,
            "joules_change": 0.2, "seconds_change": None,
        },
    } | more  # fmt: skip


class Power:
    """What the fake service knows of it."""

    def __init__(self) -> None:
        self.queries: list[dict[str, str]] = []
        self.told: list[Json] = []
        self.job = a_job()
        self.each: list[Json] = []
        self.unit = "W"
        self.taken: Json = {}

    def nodes(self, _: FakeServer, call: Call) -> Json:
        self.queries.append(call.query)
        return {"items": [node("n1", 1500.0), node("n2\x1b[2J", None, cap=300.0)], "next": ""}

    def system(self, _: FakeServer, call: Call) -> Json:
        window = {"start": 1.7e9, "end": 1.7e9 + 300, "step": 10.0}
        return {**window, "system": part("system", 2.5e6, 3), "joules": 7.5e8, "known": 0.75}

    def cabinets(self, _: FakeServer, call: Call) -> Json:
        return {"start": 0.0, "end": 1.0, "step": 10.0, "items": [part("x1000", 2.5e6), part("", None)]}

    def history(self, _: FakeServer, call: Call) -> Json:
        self.queries.append(call.query)
        return {
            "metric": call.query["metric"], "unit": self.unit, "nodes": 2,
            "start": 1.7e9, "end": 1.7e9 + 30, "step": 10.0,
            "times": [1.7e9, 1.7e9 + 10, 1.7e9 + 20], "values": [100.0, None, 300.0], "counts": [2, 0, 1],
            "each": self.each,
        }  # fmt: skip

    def jobs(self, _: FakeServer, call: Call) -> Json:
        self.queries.append(call.query)
        keys = ("job", "apid", "user", "name", "nodes", "start", "end", "seconds", "joules", "known", "average", "peak")
        return {"items": [{key: self.job[key] for key in keys}]}

    def one(self, _: FakeServer, call: Call) -> Json:
        self.queries.append(call.query)
        return self.job

    def tell(self, _: FakeServer, call: Call) -> Json:
        self.told.append(call.body)
        count = len(call.body.get("events", ())) + len(call.body.get("runs", ()))
        return {"taken": count, "refused": [], "unknown_nodes": 0, **self.taken}


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Power:
    found = Power()
    routes = [
        ("GET", "/v1/power/nodes", "select sort limit cursor", found.nodes),
        ("GET", "/v1/power/history", "select metric start end step each", found.history),
        ("GET", "/v1/power/system", "start end step", found.system),
        ("GET", "/v1/power/cabinets", "start end step", found.cabinets),
        ("GET", "/v1/power/jobs", "user since running limit", found.jobs),
        ("GET", "/v1/power/jobs/([^/]+)", "apid", found.one),
        ("POST", "/v1/power/jobs", "", found.tell),
    ]
    monkeypatch.setattr(fake_server, "ROUTES", [*fake_server.ROUTES, *routes])
    return found


def test_without_a_selection_the_machine_and_its_cabinets_are_shown(server: FakeServer, run: Run, power: Power) -> None:
    done = run("energy", "show")
    assert done.code == 0, done.err
    assert [line.split()[:3] for line in done.lines[1:]] == [
        ["system", "2.5", "MW"], ["x1000", "2.5", "MW"], ["(no", "place)", "-"],
    ]  # fmt: skip
    assert "3 of 4" in done.lines[1]
    assert "208.3 kWh in the last 5m; measured for 75% of that time" in done.err
    assert run("energy", "show", "--json").json["system"]["known"] == 0.75
    assert run("energy", "show", "--sort", "power").code == 2


def test_nodes_are_shown_with_what_is_known_of_them(server: FakeServer, run: Run, power: Power) -> None:
    done = run("energy", "show", "n[1-2]", "--columns", "node,power,cap,temperature,energy")
    assert done.lines[1].split() == ["n1", "1.5", "kW", "none", "55", "°C", "2", "kWh"]
    assert "300 W" in done.lines[2] and "\x1b" not in done.out
    assert power.queries[0]["select"] == "n[1-2]"


def test_top_asks_for_the_highest(server: FakeServer, run: Run, power: Power) -> None:
    assert run("energy", "top", "-n", "5", "--by", "temperature").code == 0
    assert run("energy", "top", "@gpu", "--lowest").code == 0
    asked = [(q["select"], q["sort"], q["limit"]) for q in power.queries]
    assert asked == [("*", "-temperature", "5"), ("@gpu", "power", "10")]


def test_a_history_is_a_sparkline_with_its_gaps(server: FakeServer, run: Run, power: Power) -> None:
    done = run("energy", "history", "n[1-2]", "--since", "10m")
    assert "▁·█" in done.out and "100 W" in done.out and "300 W" in done.out
    assert "1 to 2 were measured" in done.err
    asked = power.queries[0]
    assert float(asked["end"]) - float(asked["start"]) == pytest.approx(600, abs=5) and "each" not in asked


def test_a_history_of_each_has_a_line_for_each(server: FakeServer, run: Run, power: Power) -> None:
    power.each = [
        {"node": "n1", "values": [1.0, 2.0, 3.0], "trouble": TROUBLE},
        {"node": "n2", "values": [None, None, None], "trouble": TROUBLE | {"gaps": 1}},
    ]
    done = run("energy", "history", "n[1-2]", "--each")
    assert [line.split()[0] for line in done.lines[1:]] == ["n1", "n2"] and "···" in done.lines[2]
    assert "1 node with gaps" in done.err
    done = run("energy", "history", "n[1-2]", "--each", "--csv")
    assert done.lines == [
        "time,n1,n2", "2023-11-14T22:13:20Z,1.0,", "2023-11-14T22:13:30Z,2.0,", "2023-11-14T22:13:40Z,3.0,",
    ]  # fmt: skip


def test_a_history_of_energy_is_what_each_node_used_in_each_step(
    server: FakeServer, run: Run, power: Power, tmp_path: Path
) -> None:
    power.unit = "J"
    power.each = [
        {"node": "n1", "values": [9e6, 9e6 + 500, 9e6 + 2500], "trouble": TROUBLE},
        {"node": "n2", "values": [9e6, 100.0, None], "trouble": TROUBLE},
    ]
    asked = ("energy", "history", "n[1-2]", "--metric", "energy")
    done = run(*asked)
    assert done.code == 0, done.err
    assert "·▁█" in done.lines[1] and "500 J" in done.lines[1] and "2 kJ" in done.lines[1]
    assert "···" in done.lines[2], "a counter that fell was reset"
    assert run(*asked, "--each", "--csv").lines[1:] == [
        "2023-11-14T22:13:20Z,,", "2023-11-14T22:13:30Z,500.0,", "2023-11-14T22:13:40Z,2000.0,",
    ]  # fmt: skip
    assert run(*asked, "--plot", tmp_path / "e.svg").code == 0
    assert power.queries[0]["each"] == "true"


def test_a_step_has_a_length(server: FakeServer, run: Run, power: Power, tmp_path: Path) -> None:
    for more in ((), ("--parquet", tmp_path / "p.parquet")):
        done = run("energy", "history", "--step", "0s", *more)
        assert done.code == 2 and "--step" in done.err and power.queries == []


def test_the_names_of_curves_do_not_lie_on_them() -> None:
    times = [1.7e9 + 10 * place for place in range(10)]
    lines = [draw.Line(name, [400.0] * 10) for name in ("n00001", "n00002-of-the-long-names-that-nobody-likes", "x")]
    drawn = draw.scene("power", "W", times, lines)
    right = max(x for stroke in drawn.strokes for x, _ in stroke.points)
    names = {text.text: text for text in drawn.texts if text.colour != "#000"}
    assert list(names) == ["n00001", "n00002-of-the-long-names-that-..", "x"]
    for text in names.values():
        assert text.anchor == "start" and right < text.x < text.x + 6 * len(text.text) <= drawn.width
    alone = draw.scene("power", "W", times, lines[:1])
    assert max(x for stroke in alone.strokes for x, _ in stroke.points) == draw.WIDTH - draw.RIGHT


def test_a_history_as_csv_says_how_many_nodes_each_value_is_of(server: FakeServer, run: Run, power: Power) -> None:
    done = run("energy", "history", "--csv")
    assert done.lines[:3] == ["time,power,nodes", "2023-11-14T22:13:20Z,100.0,2", "2023-11-14T22:13:30Z,,0"]


def test_a_plot_is_drawn_into_a_file(server: FakeServer, run: Run, power: Power, tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    done = run("energy", "history", "n<1>", "--plot", path)
    assert (done.code, done.out) == (0, "") and "drawn into" in done.err
    drawn = ElementTree.fromstring(path.read_text())
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "power of n<1>" in texts
    (curve,) = [
        one.get("d") for one in drawn.iter("{http://www.w3.org/2000/svg}path") if one.get("stroke") == draw.COLOURS[0]
    ]
    assert curve is not None and curve.count("M") == 2, "a gap is a gap"
    assert run("energy", "history", "--plot", tmp_path / "p.gif").code == 2


@pytest.mark.slow
def test_a_plot_is_drawn_into_a_picture(server: FakeServer, run: Run, power: Power, tmp_path: Path) -> None:
    done = run("energy", "history", "--plot", tmp_path / "p.png")
    assert (done.code, done.out) == (0, ""), done.err
    data = (tmp_path / "p.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (2 * draw.WIDTH, 2 * draw.HEIGHT)
    from matplotlib.image import imread

    dots = (imread(tmp_path / "p.png")[:, :, :3] * 255).round().astype(int).reshape(-1, 3)
    drawn = {"".join(f"{part:02x}" for part in dot) for dot in np.unique(dots, axis=0).tolist()}
    assert {"ffffff", "000000", draw.COLOURS[0][1:]} <= drawn, "paper, letters, and the curve"


def test_a_picture_without_matplotlib_says_how_to_get_it(
    server: FakeServer, run: Run, power: Power, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("energy", "history", "--plot", tmp_path / "p.png")
    assert done.code == 1
    assert "a plot as PNG needs matplotlib, which is not installed" in done.err
    assert "pip install 'strata[plot]'" in done.err
    assert run("energy", "history", "--plot", tmp_path / "p.svg").code == 0


def test_a_job_is_told_in_figures(server: FakeServer, run: Run, power: Power) -> None:
    done = run("energy", "job", "7", "--nodes")
    assert done.code == 0, done.err
    for text in ("2 kWh ± 36 kJ", "2 kW on average, at most 2.4 kW", "n[1-2] (2)", "power per node +11%", "time ?"):
        assert text in done.out, text
    assert "3 gaps" in done.out and "counter" in done.out
    assert run("energy", "job", "7", "--json").json["joules"] == 7.2e6


def test_what_is_not_known_of_a_job_is_said(server: FakeServer, run: Run, power: Power) -> None:
    power.job = a_job(
        end=None, runs=2, suspended=60.0, unmeasured=1, known=0.5, doubt="a doubt", average=None, peak=None,
        trouble=TROUBLE | {"resets": 2}, earlier=power.job["earlier"] | {"runs": 0},
    )  # fmt: skip
    done = run("energy", "job", "7")
    for text in ("it runs", "newest of 2 runs", "suspended for 1m", "no runs of that user", "- on average"):
        assert text in done.out, text
    for text in ("nothing is known of 1 node", "2 resets", "a doubt"):
        assert text in done.err, text


def test_jobs_are_listed(server: FakeServer, run: Run, power: Power) -> None:
    done = run("energy", "jobs", "--user", "ada", "--running")
    assert done.lines[1].split()[:4] == ["7", "ada", "cfd", "2"] and "2 kWh" in done.out
    assert power.queries[0]["user"] == "ada" and power.queries[0]["running"] == "true"


def test_a_prolog_tells_that_a_job_starts(server: FakeServer, run: Run, power: Power) -> None:
    done = run(
        *[
            "energy",
            "record",
            "job",
            "start",
            "--job",
            "7",
            "--user",
            "ada",
            "--name",
            "cfd",
            "--nodes",
            "n[1-2]",
            "--at",
            "@1700000000",
        ]
    )
    assert (done.code, done.out, done.err) == (0, "", "")
    (event,) = power.told[0]["events"]
    assert event == {
        "what": "start", "job": "7", "apid": "", "user": "ada", "name": "cfd", "nodes": "n[1-2]", "time": 1.7e9,
    }  # fmt: skip
    assert run(*["energy", "record", "job", "start", "--job", "7"]).code == 2
    assert run(*["energy", "record", "job", "suspend", "--job", "7"]).code == 0


def test_what_was_not_taken_is_an_error(server: FakeServer, run: Run, power: Power) -> None:
    power.taken = {"refused": [{"job": "7", "reason": "nobody told that it began"}], "unknown_nodes": 2}
    done = run(*["energy", "record", "job", "end", "--job", "7"])
    assert done.code == 1 and "nobody told" in done.err and "2 nodes" in done.err


SACCT = """JobIDRaw|User|JobName|NodeList|Start|End|Suspended|State
7|ada|cfd|n[1-2]|1700000000|1700003600|00:01:30|COMPLETED
7.batch||batch|n1|1700000000|1700003600|00:00:00|COMPLETED
7.0||solve|n[1-2]|1700000010|1700003500|00:00:00|COMPLETED
8|eve|wait|None assigned|Unknown|Unknown|00:00:00|PENDING
9|eve|run|n3|1700000000|Unknown|1-00:00:01|RUNNING
"""


def test_accounting_is_taken_from_text(server: FakeServer, run: Run, power: Power) -> None:
    done = run("energy", "import", stdin=SACCT)
    assert (done.code, done.out) == (0, "3 runs taken\n"), done.err
    job, step, running = power.told[0]["runs"]
    assert (job["job"], job["user"], job["nodes"], job["end"], job["suspended"]) == (
        "7",
        "ada",
        "n[1-2]",
        1.7e9 + 3600,
        90,
    )
    assert (step["apid"], step["user"], step["name"]) == ("7.0", "ada", "solve")
    assert "end" not in running and running["suspended"] == 86_401


def test_accounting_is_taken_from_json(server: FakeServer, run: Run, power: Power, tmp_path: Path) -> None:
    old = {
        "job_id": 7, "name": "cfd", "nodes": "n[1-2]", "association": {"user": "ada"},
        "time": {"start": 1700000000, "end": 1700003600, "suspended": 90},
        "steps": [
            {"step": {"id": {"job_id": 7, "step_id": 0}, "name": "solve"}, "nodes": {"list": ["n1", "n2"]},
             "time": {"start": 1700000010, "end": 1700003500}},
            {"step": {"id": {"job_id": 7, "step_id": "batch"}, "name": "batch"}, "nodes": {"range": "n1"},
             "time": {"start": 1700000010, "end": 1700003500}},
        ],
    }  # fmt: skip
    new = {
        "job_id": 8, "name": "md", "user": "eve", "nodes": "n3",
        "time": {"start": {"set": True, "number": 1700000000}, "end": {"set": True, "infinite": False, "number": 0}},
        "steps": [{"step": {"id": "8.1", "name": "go"}, "nodes": {"range": "n3"}, "time": {"start": 1700000001}}],
    }  # fmt: skip
    # One that never began, and whose account slurmdbd does not know.
    null = {
        "job_id": 9, "name": None, "user": None, "association": None, "nodes": None, "time": None,
        "steps": [{"step": None, "nodes": None, "time": None}],
    }  # fmt: skip
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": [old, new, null, null | {"steps": None}]}))
    assert run("energy", "import", path, "--json").json == {"taken": 4, "refused": [], "unknown_nodes": 0}
    runs = power.told[0]["runs"]
    assert [(one["job"], one.get("apid"), one["nodes"]) for one in runs] == [
        ("7", None, "n[1-2]"), ("7", "7.0", "n1,n2"), ("8", None, "n3"), ("8", "8.1", "n3"),
    ]  # fmt: skip
    assert runs[0]["user"] == "ada" and runs[0]["suspended"] == 90 and "end" not in runs[2]


@pytest.mark.parametrize(
    "text", ["", "JobIDRaw|User\n", SACCT + "7|ada\n", '{"jobs": 5}', "{", SACCT.replace("1700003600", "noon", 1)]
)
def test_what_is_not_accounting_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        read(text)


def test_a_sparkline_fits_and_keeps_gaps() -> None:
    assert draw.sparkline([0, 7, None, 7]) == "▁█·█"
    assert draw.sparkline([None] * 3) == "···"
    assert draw.sparkline([5, 5]) == "▁▁"
    assert draw.sparkline([]) == ""
    assert len(draw.sparkline([float(n) for n in range(1000)], 60)) == 60
    assert draw.sparkline([50.0, 100.0], low=0, high=100) == "▅█"


def test_a_plot_of_nothing_is_a_plot() -> None:
    ElementTree.fromstring(draw.svg("t", "W", [], [draw.Line("a", [])]))
    ElementTree.fromstring(draw.svg("t\x00<b>", "°C", [1.0], [draw.Line("a", [1e12]), draw.Line("b", [None])]))
