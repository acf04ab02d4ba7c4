"""The API over the real service: Schemathesis asks everything that its document allows, and more.

``STRATA_EXAMPLES`` makes it ask more often than is usual.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest
import schemathesis
from known_values import fill_in
from provisioned import IMAGE, MAC, PROFILE, SET, TAGS, Ids, live, provide
from real_service import BUILD, Bridge, RealService, describe, furnish_hardware
from schema_checks import Operations, ask_and_check, examples, schema_of

from strata.api.http import seal
from strata.core import logs
from strata.provisioning.exec import service as service_exec
from strata.provisioning.images import uploads

BRIDGE = Bridge()
OPERATIONS = Operations(schema_of(BRIDGE))

NAMES = ["n00001", "n00002", "n00009", "n00016", "n00020", "n1", "N00001"]
GROUPS = ["compute", "gpu", "login", "service", "new"]
SELECTORS = [
    "*",
    "@compute",
    "n[00001-00004],@gpu!@login",
    "n0000*",
    "!@gpu",
    "!!!!n00001",
    "state:ready,held",
    "fact:power=on",
    "want:image=v2",
    "want:nothing=x",
    "label:accelerator",
    "role:compute",
    "arch:aarch64",
    "location:x1000",
    "location:d0",
    "n00001^n00002&@*",
    "n[1-9999999]",
    "absent",
    "@absent",
    "@[1-3]",
    "][",
    "n[00001-00003]x[1-2]",
]
SETS = [
    {},
    {"power": "on"},
    {"power": ["on", "off"], "image": "v1"},
    {"image": ["v1", "v2"], "os": "up"},
    {"power": "sideways"},
    {"nothing": "x"},
    {"power": "unknown"},
]
CURSORS = [seal(text) for text in ("n00003", "0", "7", "-1", "1e3", "9" * 400, "\u0663", "x", "", "0" * 17)]
IDS = Ids()
PATH = {
    "/v1/groups name": GROUPS,
    "/v1/documents name": ["base", "gpu", "new"],
    "/v1/images name": [IMAGE, "absent"],
    "/v1/personalities name": [SET, "new"],
    "/v1/boot/profiles name": ["default", PROFILE, "new"],
    "name": NAMES,
    "tag": [*TAGS, "absent"],
    "mac": [MAC, "52:54:00:00:99:99"],
    "upload": ["0" * 32],
    "log": ["0" * 32],
    "/v1/exec job": ["0" * 16],
    "frozen": ["fleet", "group:service", "group:absent", "node:n00001", "node:absent"],
    "operation": ["0" * 17],
    "job": ["0" * 17],
    "/v1/jobs job": ["0" * 12, "4k2j9x0qv7m1"],
    "ident": ["0" * 16],
    "dump": ["1-2", "2-1", "7-9"],
    "token": ["0" * 57],
    "/v1/webhooks name": ["pager", "new"],
    "/v1/hardware/discover operation": ["0" * 17],
}
ADDRESSES = ["default", "http://127.0.0.1:*", "https://10.0.0.*", "https://bmc.example", "ipmi://bmc.example", "x y"]
"""Of controllers; and those of the simulated ones."""
ALERTS = ["absent"]
UPLOADS = ["0" * 32]
SOURCES = [f"{IMAGE}:{TAGS[0]}", f"{IMAGE}@1", f"{IMAGE}@99", "absent:1"]
OTHER = {
    "upload": UPLOADS,
    "registry": ["", "registry.example/debian:12", "x"],
    "source": SOURCES,
    "other": SOURCES,
    "release": SOURCES,
    "minos": ["latest", BUILD, "f" * 12],
    "parameters": ["", "loglevel=7", "-panic", "password=x"],
    "where": ["", "minos", "system"],
    "argv": [["true"], ["uname", "-r"]],
    "interfaces": [[], [{"mac": MAC}], [{"mac": "52:54:00:00:00:01", "address": "127.1.0.1"}], [{"mac": "x"}]],
    "address": ADDRESSES,
    "pattern": ADDRESSES,
    "bmc": ADDRESSES,
    "action": ["on", "off", "graceful-off", "cycle", "graceful-restart", "nmi"],
    "target": ["none", "pxe", "http", "media", "disk", "setup"],
    "uri": ["", "http://images.example/fw.bin", "x"],
    "image": ["", "http://images.example/boot.iso", "x"],
    "watts": [None, 500.0, 1.0, 9e5],
    "attributes": [{"ProcTurbo": "Disabled"}, {"BootMode": "Uefi"}, {"Nothing": None, "Cores": 1}, {}],
    "kind": ["memory", "processor", "nic", "drive", "soup"],
    "text": ["panic", "login", "(", "DIMM"],
    "severity": ["ok", "warning", "critical"],
    "confirm": ["power off 20 nodes", "power off 9 nodes", "power off 1 nodes", "yes"],
    "ids": [ALERTS, ["absent"]],
    "after": ["", "1", "x"],
    "select": SELECTORS,
    "members": [*SELECTORS, ""],
    "add": [*SELECTORS, ""],
    "remove": [*SELECTORS, ""],
    "scope": ["fleet", "group:service", "group:absent", "node:n00001", "node:absent"],
    "cursor": CURSORS,
    "name": [*NAMES, "base"],
    "location": ["", "x1000c0s0b0n0", "x3c0s0b0n0", "x1000", "zzz"],
    "architecture": ["x86_64", "aarch64", "sparc"],
    "nid": [None, 1, 2, 77],
    "set": SETS,
    "unset": [[], ["power"], ["nothing"]],
    "since": [0, 1, 5, 50, 10**6],
    "sort": ["name", "-uid", "nid", "-location", "role", "architecture", "-state"],
}
HEADERS = [
    {},
    {},
    {"If-Match": "*"},
    {"If-Match": '"1"'},
    {"If-Match": 'W/"7-12", "9"'},
    {"If-Match": "nonsense"},
    {"If-None-Match": "*"},
    {"If-None-Match": '"1", W/"2"'},
    {"Prefer": "respond-async"},
    {"Last-Event-ID": "3"},
    {"Last-Event-ID": "-3"},
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    level = logs.get_level()
    found = BRIDGE.start(tmp_path_factory.mktemp("state"), "")
    BRIDGE.run(furnish_hardware(found))
    BRIDGE.run(provide(found, IDS))
    BRIDGE.run(live(found, IDS))
    PATH["operation"].append(found.job)
    PATH["/v1/hardware/discover operation"].append(found.discovery)
    PATH["/v1/exec job"].append(IDS.run)
    PATH["log"].append(IDS.log)
    ADDRESSES.extend([found.bmcs.url("n00001"), found.bmcs.url("n00002"), found.spare[0]])
    ALERTS[:] = list(found.hub.alerts.alerts)[:3]
    # How much may be under way at once is no part of the document.
    with mock.patch.object(service_exec, "MOST_RUNS", 10**6), mock.patch.object(uploads, "MOST_AT_ONCE", 10**6):
        yield found
    BRIDGE.stop()
    logs.set_level(level)


@pytest.fixture(autouse=True)
def all_there(real: RealService) -> None:
    """What the operation before this one deleted is back."""
    BRIDGE.run(describe(real))
    BRIDGE.run(provide(real, IDS))
    PATH["upload"][1:] = UPLOADS[1:] = [IDS.upload]


@examples(int(os.environ.get("STRATA_EXAMPLES", "80")))
def _ask(case: schemathesis.Case) -> None:
    fill_in(case, PATH, OTHER, HEADERS)
    ask_and_check(case)


# The service draws random numbers in its own thread, which Hypothesis takes for its strategies' doing.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS.labels)
def test_no_request_gets_a_server_error_or_an_undocumented_answer(operation: str) -> None:
    OPERATIONS.ask(operation, _ask)
