"""``strata job`` against a fake service: what options come to in the document that is sent."""

from __future__ import annotations

from typing import Any

import fake_server
import pytest
from cli_support import Run
from fake_server import Call, FakeServer

Json = dict[str, Any]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """Documents of jobs that the service was asked about."""
    found: list[Json] = []

    def plan(_: FakeServer, call: Call) -> Json:
        found.append(call.body)
        resources = call.body["resources"]
        return {"target": "slurm", "considered": [], "resources": resources, "environment": "", "assumed": []}

    monkeypatch.setattr(fake_server, "ROUTES", [("POST", "/v1/jobs/plan", "", plan), *fake_server.ROUTES])
    return found


@pytest.mark.parametrize(("typed", "sent"), [("350W", 350), ("1.5kW", 1500), ("700", 700)])
def test_a_power_cap_is_typed_with_its_unit(
    server: FakeServer, run: Run, planned: list[Json], typed: str, sent: int
) -> None:
    done = run("job", "submit", "--power", typed, "--explain", "--", "true")
    assert done.code == 0, done.err
    assert [document["resources"] for document in planned] == [{"power": sent}]
    assert "W" in done.out


@pytest.mark.parametrize("typed", ["0W", "-5W", "350V", "nan"])
def test_a_power_cap_that_is_none_is_refused(server: FakeServer, run: Run, planned: list[Json], typed: str) -> None:
    done = run("job", "submit", "--power", typed, "--explain", "--", "true")
    assert done.code == 2 and "--power" in done.err and not planned


def test_files_for_output_and_errors_are_sent_as_whole_paths(
    server: FakeServer, run: Run, planned: list[Json], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("job", "submit", "--stdout", "out.%j", "--stderr", "/err.%j", "--explain", "--", "true")
    assert done.code == 0, done.err
    assert (planned[0]["stdout"], planned[0]["stderr"]) == (f"{tmp_path}/out.%j", "/err.%j")
