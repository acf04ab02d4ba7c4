"""Controllers that came after the node had booted: what an agent learns, keeps and ignores."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from strata.agent.boot import learn_controllers, take_boot
from strata.agent.errors import Unreachable
from strata.agent.link.http import Connection
from strata.agent.paths import Paths

FIRST, SECOND = "https://10.77.0.1:8443", "https://10.77.0.2:8443"


def booted(folder: Path) -> Paths:
    paths = Paths(run=folder / "run")
    paths.given = folder / "boot.json"
    paths.given.write_text(json.dumps({"node": "n1", "generation": 1, "controllers": [FIRST], "ca": "", "token": "t"}))
    return paths


def test_a_new_controller_is_known_to_everybody_who_has_the_list_and_after_a_restart(tmp_path: Path) -> None:
    paths = booted(tmp_path)
    boot = take_boot(paths)
    shared = boot.controllers
    assert learn_controllers(boot, f"{SECOND} {FIRST}", paths)
    assert shared == [FIRST, SECOND]
    assert not learn_controllers(boot, f"{FIRST} {SECOND}", paths), "that is no news"
    again = take_boot(paths)
    assert again.controllers == [FIRST, SECOND]
    assert again.token == "t", "the rest stays"


def test_none_is_forgotten_and_nothing_else_is_believed(tmp_path: Path) -> None:
    paths = booted(tmp_path)
    boot = take_boot(paths)
    for told in ("", " ", "http://10.77.0.3:8443", "10.77.0.3", f"https://{'x' * 300}"):
        assert not learn_controllers(boot, told, paths)
    assert learn_controllers(boot, SECOND, paths)
    assert boot.controllers == [FIRST, SECOND]


def test_the_list_does_not_grow_without_end(tmp_path: Path) -> None:
    paths = booted(tmp_path)
    boot = take_boot(paths)
    for number in range(100):
        learn_controllers(boot, f"https://10.0.0.{number}:8443", paths)
    assert len(boot.controllers) == 16
    assert boot.controllers[-1] == "https://10.0.0.99:8443"


def test_what_cannot_be_kept_is_known_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    paths = booted(tmp_path)
    boot = take_boot(paths)
    monkeypatch.setattr("strata.agent.boot.save_json", full)
    assert learn_controllers(boot, SECOND, paths)
    assert boot.controllers == [FIRST, SECOND]


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 70}.y"])
def test_a_name_that_no_host_can_have_is_one_that_cannot_be_reached(host: str) -> None:
    with pytest.raises(Unreachable, match="cannot be reached"):
        Connection(f"https://{host}:8443", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
