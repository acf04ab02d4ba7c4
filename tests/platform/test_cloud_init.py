"""cloud-init: who is told what, that nothing secret is among it, and that the real one takes it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, NotFound
from strata.core.node import Interface, Node
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.groups.records import GroupSpec
from strata.fleet.groups.service import GroupService
from strata.platform.cloudinit.records import CloudInitSpec
from strata.platform.cloudinit.rendering import network_config
from strata.platform.cloudinit.service import CloudInitService
from strata.platform.config.reading import read_repository
from strata.platform.config.service import ConfigService
from support.boot_site import Boots, address_of, booting, mac_of, make_node, networks
from support.platform_fleet import platform_fleet
from support.rooms import OpenFleet
from support.site_repository import SiteRepository

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGZvb2Jhcg== admin@site"
USER_DATA = """#cloud-config
write_files:
  - path: /etc/motd
    content: "managed by strata\\n"
"""
NODE = """
set -e
for place in /run /var/lib /home /root; do mount -t tmpfs tmpfs $place; done
mkdir -p /run/lock
cp -a /etc "$1/etc" && mount --bind "$1/etc" /etc
rm -f /etc/netplan/*.yaml
cat > /etc/cloud/cloud.cfg <<END
datasource_list: [NoCloud]
datasource: {NoCloud: {seedfrom: "$2"}}
network: {config: disabled}
preserve_hostname: false
users: [default]
cloud_init_modules: [write-files, set_hostname, users-groups, ssh]
ssh_deletekeys: false
ssh_genkeytypes: []
system_info: {distro: debian, default_user: {name: debian, lock_passwd: true, shell: /bin/bash}}
END
rm -rf /etc/cloud/cloud.cfg.d/*
cloud-init init >/run/said 2>&1 || { cat /run/said; exit 1; }
cloud-init query --all
echo ---
hostname; cat /etc/motd; cat /home/debian/.ssh/authorized_keys
"""
"""What becomes of a machine on which cloud-init starts, in mounts of its own: folder for /etc, where to ask."""


@pytest.fixture
async def boots(tmp_path: Path) -> AsyncIterator[Boots]:
    async with booting(tmp_path) as site:
        yield site


@pytest.fixture
async def fleet(boots: Boots, tmp_path: Path) -> AsyncIterator[OpenFleet]:
    nodes = [make_node(number) for number in (1, 2, 3)]
    # cloud-init speaks from the first address of the loopback.
    nodes.append(Node(name="n0009", uid=9, interfaces=(Interface(mac=mac_of(9), address="127.0.0.1", name="boot"),)))
    boots.directory.update(nodes)
    put = (boots.service, networks())
    async with platform_fleet(tmp_path, nodes, CloudInitService, put=put) as found:
        await found.of(GroupService).put_group(LOCAL_ADMIN, "gpu", GroupSpec(members="n[0002,0009]"), None)
        yield found


async def put(fleet: OpenFleet, name: str, **spec: object) -> None:
    await fleet.of(CloudInitService).put(LOCAL_ADMIN, name, CloudInitSpec(**spec))  # type: ignore[arg-type]


async def test_a_node_is_told_who_it_is_and_what_its_narrowest_document_says(fleet: OpenFleet, boots: Boots) -> None:
    await put(fleet, "site", user_data="#cloud-config\na: 1\n", ssh_keys=(KEY,))
    await put(fleet, "gpu", select="@gpu", priority=10, user_data=USER_DATA)
    status, meta = await boots.get("/boot/cloud-init/meta-data", 2)
    told = json.loads(meta)
    assert status == 200
    assert (told["local-hostname"], told["public-keys"]) == ("n0002", [KEY])
    assert told["strata"]["groups"] == ["gpu"]
    assert (await boots.get("/boot/cloud-init/user-data", 2))[1].decode() == USER_DATA
    assert (await boots.get("/boot/cloud-init/n0001/user-data", 1))[1] == b"#cloud-config\na: 1\n"
    assert (await boots.get("/boot/cloud-init/vendor-data", 1))[1].startswith(b"#cloud-config")
    network = json.loads((await boots.get("/boot/cloud-init/network-config", 1))[1])
    assert network["ethernets"]["port0"]["addresses"] == [f"{address_of(1)}/8"]
    assert (await boots.get("/boot/cloud-init/passwords", 1))[0] == 404
    assert not boots.alarms


async def test_nobody_is_told_what_is_another_nodes(fleet: OpenFleet, boots: Boots) -> None:
    assert (await boots.get("/boot/cloud-init/n0001/user-data", 2))[0] == 403
    boots.seen.macs[address_of(1)] = mac_of(3)
    assert (await boots.get("/boot/cloud-init/user-data", 1))[0] == 403
    assert [(alarm.kind, alarm.node) for alarm in boots.alarms] == [("boot-data-refused", "n0001")] * 2
    assert (await boots.get("/boot/cloud-init/user-data", 77))[0] == 404


@pytest.mark.parametrize(
    "text",
    [
        "#cloud-config\npassword: hunter2\n",
        "#cloud-config\nchpasswd: {list: 'root:hunter2'}\n",
        "#cloud-config\nusers: [{name: a, hashed_passwd: x}]\n",
        "#!/bin/sh\nusermod -p '$6$rounds=5000$abcdefghijklmnop' root\n",
        "#!/bin/sh\ncat > k <<E\n-----BEGIN OPENSSH PRIVATE KEY-----\nE\n",
        "just text\n",
        "#cloud-config\n- a list\n",
    ],
)
async def test_user_data_with_a_secret_or_that_cloud_init_would_ignore_are_refused(fleet: OpenFleet, text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        await put(fleet, "site", user_data=text)
    assert "hunter2" not in str(refused.value) and "abcdefgh" not in str(refused.value)
    assert not fleet.of(CloudInitService).records.all


async def test_switches_that_sound_like_secrets_are_taken(fleet: OpenFleet) -> None:
    await put(fleet, "site", user_data="#cloud-config\nssh_pwauth: false\nchpasswd: {expire: false}\n")
    assert fleet.of(CloudInitService).records.get("site").select == "*"


async def test_who_may_see_one_group_sees_what_is_told_to_its_nodes(fleet: OpenFleet) -> None:
    await put(fleet, "site", ssh_keys=(KEY,))
    await put(fleet, "one", select="n0001", ssh_keys=(KEY,))
    service, who = fleet.of(CloudInitService), Principal(name="somebody", role="viewer", scope=("gpu",))
    assert [(view.name, view.nodes) for view in await service.all(who)] == [("site", 2)]
    with pytest.raises(NotFound):
        await service.one(who, "one")
    with pytest.raises(NotFound):
        await service.render(who, "n0001")


@pytest.mark.slow
async def test_documents_of_the_repository_are_told_and_go_with_it(fleet: OpenFleet, tmp_path: Path) -> None:
    site = SiteRepository(tmp_path / "site")
    site.commit(
        {
            "site/cloud.yaml": f"kind: cloud-init\nname: base\nssh_keys: ['{KEY}']\n",
            "systems/main/cloud.yaml": "kind: cloud-init\nname: base\nuser_data: |\n  #cloud-config\n  a: 1\n---\n"
            "kind: cloud-init\nname: gpu\nselect: '@gpu'\nuser_data: |\n  #cloud-config\n  a: 2\n",
        }
    )
    service, config = fleet.of(CloudInitService), fleet.of(ConfigService)
    done = await config.apply(LOCAL_ADMIN, read_repository(site.directory, "HEAD").configuration())
    assert {(change.kind, change.name, change.action) for change in done.changes} == {
        ("cloud-init", "base", "created"),
        ("cloud-init", "gpu", "created"),
    }
    assert "a: 2" in (await service.render(LOCAL_ADMIN, "n0002")).user_data
    assert "a: 1" in (await service.render(LOCAL_ADMIN, "n0001")).user_data
    assert KEY in (await service.render(LOCAL_ADMIN, "n0002")).meta_data

    site.write({"systems/main/cloud.yaml": "kind: cloud-init\nname: base\nuser_data: nonsense\n"})
    with pytest.raises(BadRequest, match=r"systems/main/cloud\.yaml, line 2"):
        read_repository(site.directory).configuration()
    site.commit({"systems/main/cloud.yaml": "kind: cloud-init\nname: gpu\nabsent: true\n"})
    await config.apply(LOCAL_ADMIN, read_repository(site.directory, "HEAD").configuration())
    assert sorted(service.records.all) == ["base"]


def test_one_default_route_is_given_and_ports_without_a_mac_are_left_alone() -> None:
    nets = networks(
        subnets=[
            {"network": "10.1.0.0/24", "interface": "a", "server": "10.1.0.1", "gateway": "10.1.0.254"},
            {"network": "10.2.0.0/24", "interface": "b", "server": "10.2.0.1", "gateway": "10.2.0.254"},
        ]
    )  # fmt: skip
    ports = (
        Interface(port="sw/1", address="10.1.0.9"),
        Interface(mac=mac_of(1), address="10.1.0.7"),
        Interface(mac=mac_of(2), address="10.2.0.7"),
        Interface(mac=mac_of(3), address="192.168.0.7"),
    )
    found = network_config(Node(name="n1", uid=1, interfaces=ports), nets)["ethernets"]
    assert list(found) == ["port1", "port2"]
    assert found["port1"]["routes"] == [{"to": "0.0.0.0/0", "via": "10.1.0.254"}]
    assert "routes" not in found["port2"]


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has mounts of its own")
async def test_cloud_init_itself_takes_what_a_node_is_told(fleet: OpenFleet, boots: Boots, tmp_path: Path) -> None:
    await put(fleet, "site", user_data=USER_DATA, ssh_keys=(KEY,))
    url = f"http://127.0.0.1:{boots.service.server.port}/boot/cloud-init/"
    process = await asyncio.create_subprocess_exec(
        "unshare", "-mu", "sh", "-c", NODE, "node", str(tmp_path), url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    told, _, became = said.partition("---\n")
    known = json.loads(told)
    assert known["ds"]["meta_data"]["strata"]["groups"] == ["gpu"]
    assert known["v1"]["instance_id"] == "n0009-9"
    assert known["userdata"] == USER_DATA
    assert became == f"n0009\nmanaged by strata\n{KEY}\n"

    # The network as cloud-init would write it for ifupdown.
    config, out = tmp_path / "network.json", tmp_path / "out"
    config.write_bytes((await boots.get("/boot/cloud-init/network-config", 1))[1])
    convert = await asyncio.create_subprocess_exec(
        "cloud-init", "devel", "net-convert", "-p", str(config), "-k", "yaml", "-d", str(out), "-D", "debian",
        "-m", f"eth0,{mac_of(1)}", "-O", "eni",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said = (await convert.communicate())[0].decode()
    assert convert.returncode == 0, said
    written = "".join(file.read_text() for file in out.rglob("*") if file.is_file())
    assert f"address {address_of(1)}/8" in written
