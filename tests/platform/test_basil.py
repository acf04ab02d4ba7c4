"""ALPS BASIL's inventory query, from XML to XML: what a batch system reads, and what it may not send."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from strata.core.node import Node
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.provisioning.agents.service import AgentService
from strata.slurm_cli.basil import Refused, asked, respond


def query(protocol: str = "1.3", method: str = "QUERY", kind: str = "INVENTORY") -> bytes:
    return f'<?xml version="1.0"?><BasilRequest protocol="{protocol}" method="{method}" type="{kind}"/>'.encode()


def failure(text: bytes) -> dict[str, str]:
    root = ET.fromstring("".join(respond(text)))
    data = root.find("ResponseData")
    assert root.tag == "BasilResponse" and data is not None and data.findtext("Message")
    return dict(data.attrib)


@pytest.mark.parametrize(
    "text",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><BasilRequest protocol="1.3" method="&b;"/>',
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><BasilRequest protocol="1.3" method="QUERY" type="INVENTORY"/>',
        b'<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x">%p;]><BasilRequest protocol="1.3"/>',
        b"<a>" * 21 + b"</a>" * 21,
        b"x" * (1 << 21),
        b"",
        b"<BasilRequest",
        b'<Other protocol="1.3" method="QUERY" type="INVENTORY"/>',
        query("9.9"),
        query(kind="SECRETS"),
        query(method="RESERVE"),
    ],
)
def test_what_is_no_query_of_the_inventory_is_refused_before_anything_in_it_is_looked_up(text: bytes) -> None:
    with pytest.raises(Refused):
        asked(text)
    told = failure(text)
    assert told["status"] == "FAILURE" and told["error_class"] == "PERMANENT"


def test_a_service_that_is_away_is_a_failure_that_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STRATA_SLURM_CONFIG", str(tmp_path / "none.json"))
    assert failure(query())["error_class"] == "TRANSIENT"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [(["--help"], 0, "usage: apbasil [FILE]"), (["a", "b"], 2, "usage: apbasil"), (["/nowhere"], 1, "No such file")],
)
def test_a_wrong_command_line_says_what_is_right(words: list[str], code: int, said: str) -> None:
    program = "from strata.slurm_cli.basil import main; main()"
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code and said in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_what_is_spoken_is_told_without_asking_the_service() -> None:
    root = ET.fromstring("".join(respond(query("1.0", kind="ENGINE"))))
    engine = root.find("ResponseData/Engine")
    assert engine is not None and "1.3" in engine.attrib["basil_support"]


@pytest.mark.slow
@pytest.mark.server
async def test_nodes_with_a_nid_are_told_with_their_processors_and_memory(tmp_path: Path) -> None:
    settings = Settings(
        state_dir=tmp_path / "state",
        controller_id="c1",
        layers=("hardware", "provisioning", "platform"),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
    )
    async with running(settings) as fleet:
        nodes = [
            Node(name="n1", uid=0, nid=1, location="x1000c0s0b0n0"),
            Node(name="n2", uid=0, nid=2),
            Node(name="login", uid=0, nid=3, role="login"),
            Node(name="other", uid=0),
        ]
        await fleet.edits.create_nodes(nodes, "test")
        await fleet.settled(await fleet.store.revision())
        told = {"cpu": {"sockets": 2, "cores": 4, "threads": 8}, "memory_bytes": 8 << 30}
        for name in ("n1", "n2"):
            await fleet.of(AgentService).inventories.put(name, json.dumps(told).encode())
        (tmp_path / "slurm.json").write_text(json.dumps({"url": f"unix:{settings.state_dir}/admin.sock"}))

        async def run(protocol: str) -> ET.Element:
            import asyncio

            done = await asyncio.to_thread(_apbasil, tmp_path / "slurm.json", query(protocol))
            assert done.returncode == 0, done
            found = ET.fromstring(done.stdout).find("ResponseData[@status='SUCCESS']/Inventory/NodeArray")
            assert found is not None, done.stdout
            return found

        new = await run("1.3")
        assert [(node.get("node_id"), node.get("name"), node.get("role")) for node in new.findall("Node")] == [
            ("1", "x1000c0s0b0n0", "BATCH"),
            ("2", "n2", "BATCH"),
            ("3", "login", "INTERACTIVE"),
        ]
        first = new.find("Node[@node_id='1']")
        assert first is not None
        assert len(first.findall("SocketArray/Socket")) == 2
        assert len(first.findall(".//ComputeUnit")) == 4 and len(first.findall(".//Processor")) == 8
        pages = sum(int(memory.get("page_count", 0)) for memory in first.findall(".//Memory"))
        assert pages * 4096 == 8 << 30
        old = (await run("1.0")).find("Node[@node_id='1']")
        assert old is not None and len(old.findall("SegmentArray/Segment/ProcessorArray/Processor")) == 8


def _apbasil(config: Path, text: bytes) -> subprocess.CompletedProcess[bytes]:
    code = "from strata.slurm_cli.basil import main; main()"
    env = os.environ | {"STRATA_SLURM_CONFIG": str(config)}
    return subprocess.run(
        [sys.executable, "-c", code], input=text, env=env, capture_output=True, timeout=60, check=False
    )
