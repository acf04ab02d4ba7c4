"""``strata power policy`` against a fake service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fake_server
import pytest
from cli_support import Run
from fake_server import Call, FakeServer

Json = dict[str, Any]
SITE: Json = {
    "limit": 2e6, "ramp": None, "band": None, "policy": "night", "controller": "c1", "static": 4000.0,
    "allowed": 1.9e6, "over": 0.0, "in_flight": 3, "error": "",
}  # fmt: skip


class Policies:
    """What the fake service knows of them."""

    def __init__(self) -> None:
        self.site = SITE
        self.called: list[tuple[str, str, Json]] = []
        self.simulated: Json | None = {
            "author": "ada", "time": 1.7e9, "nodes": 8000, "days": 1.0, "limit": 2e6, "peak": 1.9e6,
        }  # fmt: skip

    def asked(self, what: str) -> Any:
        """A handler that notes what was asked, of whom, and with what."""

        def handler(_: FakeServer, call: Call) -> Json:
            self.called.append((what, call.name, call.body or {}))
            return self.one()

        return handler

    def one(self) -> Json:
        return {
            "name": "night", "doc": "", "enabled": True, "limit": 2e6, "author": "ada", "time": 1.7e9, "digest": "0f",
            "simulated": self.simulated, "unsimulated": "no time", "text": "limit: 2MW\nname: \x1b[2J\n",
        }  # fmt: skip

    def all(self, server: FakeServer, call: Call) -> Json:
        return {"items": [self.one()], "site": self.site}


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> Policies:
    found = Policies()
    routes = [
        ("GET", "/v1/power/policies", "", found.all),
        ("GET", "/v1/power/policies/([^/]+)", "", found.asked("show")),
        ("PUT", "/v1/power/policies/([^/]+)", "", found.asked("put")),
        ("POST", "/v1/power/policies/([^/]+)/enable", "", found.asked("enable")),
        ("POST", "/v1/power/policies/([^/]+)/disable", "", found.asked("disable")),
        ("DELETE", "/v1/power/policies/([^/]+)", "", found.asked("delete")),
        ("POST", "/v1/power/simulations", "", found.asked("simulate")),
    ]
    monkeypatch.setattr(fake_server, "ROUTES", [*fake_server.ROUTES, *routes])
    return found


def test_one_node_that_was_simulated_is_one_node(server: FakeServer, run: Run, policies: Policies) -> None:
    policies.simulated = {**(policies.simulated or {}), "nodes": 1}
    assert "1 node, peak" in run("power", "policy", "list").lines[1]


def test_the_list_says_where_the_site_stands(server: FakeServer, run: Run, policies: Policies) -> None:
    done = run("power", "policy", "list")
    assert done.code == 0, done.err
    assert done.lines[1].split()[:4] == ["night", "yes", "2", "MW"] and "8000 nodes, peak 1.9 MW" in done.lines[1]
    assert "limit 2 MW, at most 1.9 MW may be drawn now, 3 nodes with a command under way, kept by c1" in done.err
    policies.simulated = None
    policies.site = {**SITE, "limit": None, "policy": "", "allowed": None}
    done = run("power", "policy", "list")
    assert "no: no time" in done.lines[1] and "The site has no limit, and no policy runs." in done.err
    assert run("power", "policy", "list", "--json").json[0]["digest"] == "0f"


def test_a_policy_is_shown_with_what_it_says(server: FakeServer, run: Run, policies: Policies) -> None:
    done = run("power", "policy", "show", "night")
    assert "limit: 2MW" in done.lines and "\x1b" not in done.out


def test_a_policy_is_put_under_its_name_enabled_disabled_and_deleted(
    server: FakeServer, run: Run, policies: Policies, tmp_path: Path
) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("limit: 2MW\n")
    assert run("power", "policy", "put", file).code == 0
    assert run("power", "policy", "put", file, "--name", "day", "--without-simulation", "no time").code == 0
    file.write_text("name: night\nlimit: 2MW\n")
    assert run("power", "policy", "put", file).code == 0
    for command in ("enable", "disable", "delete"):
        assert run("power", "policy", command, "night").code == 0
    assert [(what, name) for what, name, _ in policies.called] == [
        ("put", "some"), ("put", "day"), ("put", "night"), ("enable", "night"), ("disable", "night"),
        ("delete", "night"),
    ]  # fmt: skip
    assert policies.called[1][2] == {"text": "limit: 2MW\n", "without_simulation": "no time"}
    file.write_text("limit: much\n")
    assert run("power", "policy", "put", file).code != 0 and len(policies.called) == 6


@pytest.mark.slow
def test_a_simulation_is_told_to_the_service(server: FakeServer, run: Run, policies: Policies, tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("limit: 20kW\ncap: 300W\n")
    done = run("power", "simulate", "--policy", file, "--nodes", "50", "--days", "0.05", "--alone")
    assert done.code == 0 and "recorded as simulated" in done.err
    [(what, _, body)] = policies.called
    assert what == "simulate"
    assert (body["text"], body["nodes"], body["limit"]) == ("limit: 20kW\ncap: 300W\n", 50, 20_000)
    run("power", "simulate", "--policy", file, "--nodes", "50", "--days", "0.05", "--alone", "--no-record")
    run("power", "simulate", "--policy", file, "--nodes", "50", "--days", "0.05", "--alone", "--limit", "30kW")
    assert len(policies.called) == 1, "one was told not to, the other simulated another limit"
