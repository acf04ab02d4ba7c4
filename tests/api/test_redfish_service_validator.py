"""DMTF's service validator: every resource against the schemas of the standard. No failure, no warning.

Where the schemas are not at hand it cannot run, and says so; ``test_redfish_closure`` checks the tree without them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redfish_site import SCHEMAS, Reach, redfish_site, run

from system.system_support import Controller, eventually, world

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SCHEMAS.is_dir(), reason="the standard's schemas are not here: see test_redfish_closure"),
]

_NUMBERS = re.compile(r"\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(\d+)\s*\|")


async def validated(reach: Reach) -> tuple[int, int, int]:
    """How much passed, how many warnings and how many failures there were."""
    schemas = reach.directory / "schemas"
    shutil.copytree(SCHEMAS, schemas)  # it may write there
    # It ends with the table of results; the reports that it would write after that take longer than all the rest.
    done = await run(
        reach, "rf_service_validator", "--authtype", "Session", "--skipschema", "--schema_directory", str(schemas),
        "--logdir", str(reach.directory / "logs"), limit=850, until=_NUMBERS,
    )  # fmt: skip
    found = _NUMBERS.search(done.out)
    assert found is not None, done.out[-3000:]
    troubles = [part for part in done.out.split("Validating ") if re.search(r"(Warn|Fail): [1-9]", part)]
    passed, warned, failed = (int(found[n]) for n in (1, 2, 3))
    assert (warned, failed) == (0, 0), "".join(troubles)[:5000]
    return passed, warned, failed


async def test_a_machine_with_some_of_everything_is_as_the_schemas_say(tmp_path: Path) -> None:
    async with redfish_site(tmp_path, 4) as site:
        passed, *_ = await validated(site)
    assert passed > 4000


@pytest.fixture
def served() -> Iterator[Reach]:
    """``strata serve`` behind nginx, with a simulator of 64 nodes: processes of their own."""
    with world() as started, tempfile.TemporaryDirectory(prefix="rf-") as name:
        controller = started.controller("c1", started.simulator(64, 0.0), tls=True)
        controller.start()
        controller.wait_ready()
        _discover(controller)
        yield _reach(controller, Path(name))


def _discover(controller: Controller) -> None:
    """Have the controllers of all nodes looked at, so that there is an inventory."""
    job = controller.client.request("POST", "/v1/hardware/discover", body={"known": True}).body["id"]
    over = eventually("discovered", lambda: _ended(controller.client.get(f"/v1/operations/{job}")), 120.0)
    assert (over["state"], over["failed"]) == ("done", 0), over


def _ended(job: dict[str, Any]) -> dict[str, Any] | None:
    return job if job["finished"] is not None else None


def _reach(controller: Controller, directory: Path) -> Reach:
    made = controller.client.request("POST", "/v1/auth/tokens", body={"role": "admin", "ttl": 3600}).body
    # The door opens after the administrator's socket.
    url = eventually("the door is open", lambda: (controller.state / "url").read_text().strip(), 60.0)
    return Reach(url, made["view"]["id"], made["token"], controller.state / "ca" / "ca.pem", directory)


async def test_sixty_four_simulated_nodes_are_as_the_schemas_say(served: Reach) -> None:
    passed, *_ = await validated(served)
    assert passed > 64 * 300
