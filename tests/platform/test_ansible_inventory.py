"""The fleet as Ansible's inventory: what is in it, and that Ansible itself takes it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strata.core.node import Interface, Node
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.fleet import Fleet
from strata.fleet.groups.records import GroupSpec
from strata.fleet.groups.service import GroupService
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.platform.ansible.inventory import group_names, inventory
from strata.platform.ansible.service import AnsibleService

PLAYBOOK = """
- hosts: gpu_nodes
  connection: local
  gather_facts: false
  tasks:
    - copy:
        dest: "{{ out }}/{{ inventory_hostname }}"
        content: "{{ ansible_host }} {{ strata_labels.rack }} {{ strata_groups | join(' ') }}"
"""


def a_node(number: int, **more: object) -> Node:
    address = f"10.77.{number >> 8}.{number & 255}"
    port = Interface(mac=f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}", address=address, name="boot")
    return Node(name=f"n{number}", uid=number, interfaces=(port,), labels={"rack": "r1"}, **more)  # type: ignore[arg-type]


def test_groups_that_ansible_would_call_the_same_stay_apart() -> None:
    called = group_names(["a-b", "a.b", "all", "gpu-nodes", "role_compute", "9th"])
    assert called[3] == "gpu_nodes"
    assert called[5] == "_9th"
    assert len({*called, "all", "role_compute"}) == len(called) + 2
    assert all(word.replace("_", "a").isalnum() for word in called)


def test_nothing_that_ansible_would_take_for_a_template_is_in_it() -> None:
    evil = Interface(mac="52:54:00:00:00:01", name="{{ lookup('pipe', 'id') }}", port="a/{{ 1 }}")
    found = inventory([Node(name="n1", uid=1, bmc="http://{{ 1 }}", interfaces=(evil,))], ["ready"], {})
    assert "{{" not in json.dumps(found)
    assert found["_meta"]["hostvars"]["n1"]["strata_interfaces"][0]["mac"] == evil.mac


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    settings = Settings(
        state_dir=tmp_path / "state",
        controller_id="c1",
        layers=("hardware", "provisioning", "platform"),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
    )
    async with running(settings) as found:
        nodes = [a_node(number, bmc="https://10.0.0.1") for number in (1, 2, 3)]
        await found.edits.create_nodes(nodes, "test")
        await found.settled(await found.store.revision())
        await found.of(GroupService).put_group(LOCAL_ADMIN, "gpu-nodes", GroupSpec(members="n[1-2]"), None)
        yield found


@pytest.mark.slow
async def test_whoever_may_see_one_group_gets_an_inventory_of_that_group_alone(fleet: Fleet) -> None:
    await fleet.of(GroupService).put_group(LOCAL_ADMIN, "rest", GroupSpec(members="n[2-3]"), None)
    who = Principal(name="somebody", role="viewer", scope=("rest",))
    found = json.loads(await fleet.of(AnsibleService).inventory(who, "*"))
    assert sorted(found["_meta"]["hostvars"]) == ["n2", "n3"]
    assert "gpu-nodes" not in json.dumps(found) and "gpu_nodes" not in found
    assert found["rest"]["hosts"] == found["role_compute"]["hosts"] == ["n2", "n3"]


@pytest.mark.slow
@pytest.mark.server
async def test_ansible_runs_a_playbook_over_the_inventory(fleet: Fleet, tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    script, playbook, out = tmp_path / "strata.sh", tmp_path / "site.yaml", tmp_path / "out"
    socket = fleet.settings.state_dir / "admin.sock"
    script.write_text(f'#!/bin/sh\nexec {programs}/strata --url unix:{socket} ansible inventory "$@"\n')
    script.chmod(0o755)
    playbook.write_text(PLAYBOOK)
    out.mkdir()
    home = {"HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    process = await asyncio.create_subprocess_exec(
        str(programs / "ansible-playbook"), "-i", str(script), "-e", f"out={out}", str(playbook),
        env={**home, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"WARNING" not in said, said.decode()
    assert {file.name: file.read_text() for file in out.iterdir()} == {
        "n1": "10.77.0.1 r1 gpu-nodes",
        "n2": "10.77.0.2 r1 gpu-nodes",
    }
