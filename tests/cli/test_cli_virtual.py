"""``strata virtual`` where the fleet is simulated: what works without virtual machines does, all else says so."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cli_support import Run
from fake_server import FakeServer

from strata.cli.up.simulated import SIMULATOR_OPTIONS


class Bmcs(HTTPServer):
    """BMCs of a simulator: which nodes have power, by the path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.power = {"n1": "On", "n2": "On"}

    def address(self, node: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/bmc/{node}"


class _Handler(BaseHTTPRequestHandler):
    server: Bmcs

    def do_GET(self) -> None:
        self._answer({"PowerState": self.server.power[self.path.split("/")[2]]})

    def do_POST(self) -> None:
        assert json.loads(self.rfile.read(int(self.headers["Content-Length"]))) == {"ResetType": "ForceOff"}
        self.server.power[self.path.split("/")[2]] = "Off"
        self._answer({})

    def _answer(self, body: dict[str, str]) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def bmcs(server: FakeServer, short_dir: Path) -> Iterator[Bmcs]:
    (short_dir / SIMULATOR_OPTIONS).write_text(json.dumps(["--nodes", "2"]))
    with Bmcs() as found:
        for name in found.power:
            server.add_node(name, bmc=found.address(name))
        server.add_node("real", bmc="https://10.0.0.7")
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_simulated_nodes_lose_their_power(bmcs: Bmcs, run: Run) -> None:
    done = run("virtual", "kill", "n2")
    assert (done.code, done.out) == (0, "took the power from n2\n"), done.err
    assert bmcs.power == {"n1": "On", "n2": "Off"}
    assert "it is off" in run("virtual", "kill", "n2").err


def test_a_node_that_is_not_the_simulators_is_left_alone(bmcs: Bmcs, run: Run) -> None:
    done = run("virtual", "kill", "real")
    assert done.code == 1 and "the simulator does not have it" in done.err


@pytest.mark.parametrize("words", [("list",), ("start", "n1"), ("login", "n1"), ("run", "--", "true")])
def test_what_takes_virtual_machines_says_that_there_are_none(bmcs: Bmcs, run: Run, words: tuple[str, ...]) -> None:
    done = run("virtual", *words)
    assert done.code == 1 and "the fleet here is simulated, and has no virtual machines" in done.err
