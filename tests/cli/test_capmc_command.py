"""The ``capmc`` command as schedulers run it: settings, silence, exit status, and what it needs to start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strata.capmc_cli import nids, wire
from strata.capmc_cli.capmc import SHORT, run
from strata.capmc_cli.wire import Away, Failed

CODE = "from strata.capmc_cli.capmc import main; main()"


class Service:
    """Answers every request on a unix socket with ``reply``, and keeps what it was asked."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix:{path}"
        self.reply = b'{"e":0,"err_msg":""}'
        self.status = 200
        self.asked: list[tuple[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as file:
                first = file.readline().split()
                if not first:
                    return
                length = 0
                while line := file.readline().strip():
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                self.asked.append((first[1].decode(), json.loads(file.read(length) or b"{}")))
                head = f"HTTP/1.1 {self.status} x\r\nContent-Length: {len(self.reply)}\r\n\r\n"
                connection.sendall(head.encode() + self.reply)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self.url.removeprefix("unix:"))
        self._thread.join(120)
        self._socket.close()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    found = Service(tmp_path / "s.sock")
    for key in wire.KEYS:
        monkeypatch.delenv(key.upper(), raising=False)
    monkeypatch.setenv("OS_SERVICE_URL", found.url)
    yield found
    found.close()


def test_options_make_the_requests_that_are_documented(service: Service) -> None:
    lines = {
        "node_rules": ("get_node_rules", {}),
        "node_status --nids=1-2,65 -f show_off": ("get_node_status", {"nids": [1, 2, 65], "filter": "show_off"}),
        "node_off -n 1 -r idle": ("node_off", {"nids": [1], "reason": "idle"}),
        "get_power_cap": ("get_power_cap", {}),
        "set_power_cap --nids 1 --node 220 --accel 0": (
            "set_power_cap",
            {"nids": [{"nid": 1, "controls": [{"name": "node", "val": 220}, {"name": "accel", "val": 0}]}]},
        ),
        "get_node_energy -a 5 -j 7.sdb": ("get_node_energy", {"apid": 5, "job_id": "7.sdb"}),
        "get_system_power -w 600": ("get_system_power", {"window_len": 600}),
        "get_ssds -c c0-0c0s0n0,c0-0c0s0n1": ("get_ssds", {"cname": ["c0-0c0s0n0", "c0-0c0s0n1"]}),
        "set_mcdram_cfg -m reset -n 3": ("clr_mcdram_cfg", {"nids": [3]}),
        "set_mcdram_cfg -m 25 -n 3": ("set_mcdram_cfg", {"nids": [{"nid": 3, "mcdram_cfg": "25"}]}),
        "set_ssd_enable -m disable -n 3": ("set_ssd_enable", {"nids": [{"nid": 3, "ssd_enable": 0}]}),
    }
    for line, (call, body) in lines.items():
        run(line.split())
        assert service.asked[-1] == (f"/capmc/{call}", body), line


def test_the_lower_clock_limit_is_set_twice_around_the_upper(service: Service) -> None:
    run(["set_freq_limits", "-n", "40", "-m", "1", "-M", "2"])
    path, body = service.asked[-1]
    assert path == "/capmc/cnctl"
    assert body["data"] == {
        "PWR_Function": "PWR_ObjAttrSetValues",
        "PWR_Attrs": [
            {"PWR_AttrName": "PWR_ATTR_FREQ_LIMIT_MIN", "PWR_AttrValue": "1"},
            {"PWR_AttrName": "PWR_ATTR_FREQ_LIMIT_MAX", "PWR_AttrValue": "2"},
            {"PWR_AttrName": "PWR_ATTR_FREQ_LIMIT_MIN", "PWR_AttrValue": "1"},
        ],
        "PWR_MajorVersion": 0,
        "PWR_MinorVersion": 1,
    }


def test_a_refusal_of_the_service_is_a_success_of_the_command(service: Service) -> None:
    service.status, service.reply = 400, b'{"e":400,"err_msg":"invalid nids: [0]"}'
    assert json.loads(run(["node_status"])) == {"e": 400, "err_msg": "invalid nids: [0]"}


def test_what_a_proxy_says_becomes_a_reply_that_clients_understand(service: Service) -> None:
    service.status, service.reply = 502, b"<html>Bad Gateway</html>"
    assert json.loads(run(["node_status"])) == {"e": 502, "err_msg": "Internal server error"}


def test_long_replies_pass_as_they_are(service: Service) -> None:
    service.reply = b'{"e":0,"err_msg":"","ready":[' + b",".join([b"12345"] * SHORT) + b"]}"
    assert run(["node_status"]) == service.reply


def test_the_file_says_where_the_service_is_and_the_environment_outdoes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in wire.KEYS:
        monkeypatch.delenv(key.upper(), raising=False)
    path = tmp_path / "capmc.json"
    figure_4 = {
        "os_key": "/etc/opt/cray/capmc/client.key",
        "os_cert": "/etc/opt/cray/capmc/client.crt",
        "os_cacert": "/etc/opt/cray/capmc/certificate_authority.crt",
        "os_service_url": "https://example-smw.us.cray.com:8443",
    }
    path.write_text(json.dumps(figure_4))
    assert wire.settings(str(path)) == figure_4
    monkeypatch.setenv("OS_SERVICE_URL", "https://other:1")
    assert wire.settings(str(path))["os_service_url"] == "https://other:1"
    monkeypatch.delenv("OS_SERVICE_URL")
    with pytest.raises(Failed, match="OS_SERVICE_URL"):
        wire.settings(str(tmp_path / "none"))


def test_nobody_there_is_told_in_the_words_that_clients_try_again_for(tmp_path: Path) -> None:
    for url in (f"unix:{tmp_path / 'none'}", "https://127.0.0.1:1"):
        with pytest.raises(Away, match=r"^Could not lookup"):
            wire.post("/capmc/node_rules", b"{}", {"os_service_url": url})


def test_lists_of_nids_are_read_strictly_and_folded_shortly() -> None:
    assert nids.parse("1,4,5,7-10") == [1, 4, 5, 7, 8, 9, 10]
    assert nids.fold([10, 9, 7, 8, 1, 1]) == "1,7-10"
    for text, why in {"5-3": "invalid nid range: 5-3", "1-2-3": "invalid nid range", "x": "invalid nid: x"}.items():
        with pytest.raises(ValueError, match=why):
            nids.parse(text)
    with pytest.raises(ValueError, match="invalid nid"):
        nids.parse("0-99999999")


def execute(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", CODE, *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=False, **more)


def test_it_works_without_standard_input_and_says_nothing_but_the_reply(service: Service) -> None:
    done = execute("node_status", preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == {"e": 0, "err_msg": ""}


def test_json_takes_the_request_from_standard_input(service: Service) -> None:
    done = execute("json", "--resource=/capmc/set_power_cap", input=b'{ "nids":[ { "nid":1 } ] }')
    assert (done.returncode, done.stderr) == (0, b"")
    assert service.asked == [("/capmc/set_power_cap", {"nids": [{"nid": 1}]})]


def test_what_was_not_submitted_is_a_failure(service: Service) -> None:
    assert execute("node_status", "-n", "3-1").returncode == 2
    assert execute("no_such").returncode == 1
    assert execute("node_off").returncode == 2
    done = execute("node_status", env={**os.environ, "OS_SERVICE_URL": "https://127.0.0.1:1"})
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"Could not lookup")


def test_it_starts_with_the_standard_library_alone() -> None:
    code = (
        "import sys; from strata.capmc_cli import capmc, cnselect; import strata;"
        "own = {n for n in sys.modules if n.startswith('strata') and not n.startswith('strata.capmc_cli')};"
        "heavy = {'msgspec', 'numpy', 'ssl', 'http.client', 'email', 'asyncio', 'urllib.parse'} & set(sys.modules);"
        "print(sorted(own), sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "['strata'] []"
