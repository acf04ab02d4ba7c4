"""DMTF's protocol validator against ``strata serve`` over TLS, with simulated nodes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from system_support import World, eventually

ACCOUNTS = "/redfish/v1/AccountService/Accounts"
PASSWORD = "a long Passw0rd!"

EXPLAINED: frozenset[str] = frozenset()
"""Assertions that may fail, each with its reason in docs/explanation/redfish-conformance.md."""


def validate(url: str, directory: Path) -> tuple[list[list[str]], str]:
    """The validator's table (assertion, method, status, path, result, why), and what it printed."""
    # These would make it ignore that certificates are not to be checked.
    environment = {k: v for k, v in os.environ.items() if k not in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")}
    program = Path(sys.executable).parent / "rf_protocol_validator"
    done = subprocess.run(
        [sys.executable, program, "--user", "validator", "--password", PASSWORD, "--rhost", url, "--no-cert-check",
         "--report-dir", "report", "--report-type", "tsv"],
        cwd=directory, env={**environment, "NO_PROXY": "*"}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    (report,) = (directory / "report").glob("*.tsv")
    rows = csv.reader(report.read_text(encoding="utf-8").splitlines(), delimiter="\t")
    return [row for row in rows if len(row) > 5], done.stdout + done.stderr


def _by_chance(row: list[str]) -> bool:
    """One token is tried by two statistics at 1 %: of 50 that are as random as can be, one is warned of."""
    return row[0] == "RESP_HEADERS_X_AUTH_TOKEN" and "sufficiently random" in row[5]


@pytest.mark.slow
@pytest.mark.server
def test_no_assertion_of_the_protocol_validator_fails(world: World) -> None:
    controller = world.controller("c1", world.simulator(8, 0.01), tls=True)
    controller.start()
    controller.wait_ready()
    url = controller.state / "url"
    eventually("the front door is open", url.exists, 60.0)
    controller.client.request(
        "POST", ACCOUNTS, body={"UserName": "validator", "Password": PASSWORD, "RoleId": "Administrator"}
    )
    rows, said = validate(url.read_text().strip(), world.directory)
    bad = [row for row in rows if row[4] in ("FAIL", "WARN") and row[0] not in EXPLAINED and not _by_chance(row)]
    assert not bad, said
    assert sum(row[4] == "PASS" for row in rows) > 350
    left = controller.client.get(ACCOUNTS)["Members"]
    assert left == [{"@odata.id": f"{ACCOUNTS}/validator"}]
