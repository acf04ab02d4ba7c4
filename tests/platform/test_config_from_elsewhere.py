"""A site that had other tools: its nodes and groups become a repository, and what has no place here is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
import yaml

from strata.cli import main
from strata.core.errors import BadRequest
from strata.platform.config import slurm_site, warewulf
from strata.platform.config.reading import read_repository
from strata.platform.config.repository import Repository
from strata.platform.config.starter import furnished

NODES_CONF = """
WW_INTERNAL: 45
nodeprofiles:
  default:
    comment: every node
    image name: rocky-9
    ipmi: {username: admin, password: hunter2, port: "623"}
    network devices:
      default: {device: eth0, netmask: 255.255.0.0}
    tags: {site: north}
  gpu:
    profiles: [base-gpu]
    tags: {partition: a100, site: UNDEF}
  base-gpu:
    kernel: {args: [iommu=on]}
nodes:
  n1:
    profiles: [default]
    primary network: boot
    ipmi: {ipaddr: 10.1.0.1}
    network devices:
      default: {hwaddr: "AA-BB-CC-00-00-01", ipaddr: 10.0.0.1}
      boot: {hwaddr: "aa:bb:cc:00:01:01", ipaddr: 10.2.0.1}
  n2:
    profiles: [default, gpu]
    image name: rocky-9-gpu
    ipmi: {ipaddr: 10.1.0.2, port: "6230"}
    network devices:
      default: {ipaddr: 10.0.0.2}
  n3: {}
"""
SLURM_CONF = """
ClusterName=one   # of ours
NodeName=DEFAULT Sockets=2
NodeName=n[1-3] NodeAddr=10.0.0.[1-3] RealMemory=64000 Feature=ib,fast
NodeName=g[1-2] \\
    Gres=gpu:4 Feature="ib"
NodeSet=quick Feature=fast
Include partitions.conf
"""
PARTITIONS = """PartitionName=batch Nodes=ALL Default=YES
PartitionName=gpu Nodes=g[1,2]
PartitionName=short Nodes=quick,g1
"""
HOSTS = """127.0.0.1 localhost
10.0.1.1 g1 g1.example   # the first
10.9.0.1 n1-bmc
10.9.0.4 g1-ipmi.example g1-ipmi
"""


def test_a_node_of_warewulf_has_what_its_profiles_give_it_unless_it_says_otherwise() -> None:
    site = warewulf.read(NODES_CONF, "nodes.conf")
    first, second, third = site.nodes
    assert [one["name"] for one in first["interfaces"]] == ["boot", "default"], "the one that boots is first"
    assert first["interfaces"][1] == {"mac": "aa:bb:cc:00:00:01", "address": "10.0.0.1", "name": "default"}
    assert (first["bmc"], second["bmc"], third["bmc"]) == ("ipmi://10.1.0.1", "ipmi://10.1.0.2:6230", "")
    assert first["labels"] == {"image": "rocky-9", "site": "north"}
    assert second["labels"] == {"image": "rocky-9-gpu", "partition": "a100"}
    assert third["labels"] == first["labels"], "the default profile is every node's that names none"
    groups = {group["name"]: group["members"] for group in site.groups}
    assert groups == {"default": "n[1-3]", "gpu": "n2", "base-gpu": "n2"}


def test_networks_of_warewulf_are_declared_by_addresses_and_netmasks() -> None:
    site = warewulf.read(
        NODES_CONF.replace("netmask: 255.255.0.0", "netmask: 255.255.0.0, gateway: 10.0.255.254"), "nodes.conf"
    )
    assert site.networks == [{"name": "default", "network": "10.0.0.0/16", "gateway": "10.0.255.254"}]
    assert any("without a netmask" in note for note in site.left_out), "boot has none"
    written = furnished(site.files("main", "Warewulf"))
    found = Repository({path: text.encode() for path, text in written.items() if path.endswith(".yaml")}, "main")
    assert [one.network for one in found.configuration().networks] == ["10.0.0.0/16"]
    assert json.loads(written[".strata/schema.json"])["title"] == "Strata configuration"
    assert written["systems/main/network.yaml"].startswith("# yaml-language-server: $schema=../../.strata/schema.json")


def test_every_command_that_the_notes_name_is_there() -> None:
    hosts = slurm_site.read(SLURM_CONF, "slurm.conf", HOSTS, {"partitions.conf": PARTITIONS}.__getitem__)
    notes = [*warewulf.read(NODES_CONF, "nodes.conf").left_out, *hosts.left_out, *warewulf._ELSEWHERE.values()]
    named = [words.group(1).split() for note in notes for words in re.finditer(r"strata ((?:[a-z-]+ ?)+)", note)]
    assert named
    for words in named:
        group = main.cli.get_command(click.Context(main.cli), words[0])
        assert group is not None, words
        if len(words) > 1 and isinstance(group, click.Group):
            assert group.get_command(click.Context(group), words[1]) is not None, words


def test_what_of_warewulf_has_no_place_is_named_and_no_password_is_written() -> None:
    site = warewulf.read(NODES_CONF, "nodes.conf")
    written = site.files("main", "Warewulf")
    assert not any("hunter2" in text for text in written.values())
    notes = written["IMPORTED.md"]
    assert "accounts of BMCs: put them with strata hardware credentials set; no password was written (n[1-3])" in notes
    assert "kernel: minOS brings its kernel; arguments are in boot profiles (n2)" in notes
    assert "network devices without hwaddr" in notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "not a nodes.conf"),
        ("nodes: {n1: {profiles: [missing]}}\n", "there is no profile 'missing'"),
        ("nodes: {n1: {profiles: [a]}}\nnodeprofiles: {a: {profiles: [a]}}\n", "in a circle"),
        ("nodeprofiles: {a: {}}\n", "describes no nodes"),
        ("nodes: {n1: &x {profiles: []}, n2: *x}\n", "alias"),
    ],
)
def test_a_file_that_is_none_of_warewulfs_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        warewulf.read(text, "nodes.conf")


def test_partitions_and_features_of_slurm_become_groups_and_hosts_give_addresses() -> None:
    site = slurm_site.read(SLURM_CONF, "slurm.conf", HOSTS, {"partitions.conf": PARTITIONS}.__getitem__)
    nodes = {node["name"]: node for node in site.nodes}
    assert list(nodes) == ["n1", "n2", "n3", "g1", "g2"]
    assert nodes["n2"]["labels"] == {"address": "10.0.0.2"}, "NodeAddr says it"
    assert (nodes["g1"]["labels"], nodes["g2"]["labels"]) == ({"address": "10.0.1.1"}, {})
    assert (nodes["n1"]["bmc"], nodes["g1"]["bmc"], nodes["n2"]["bmc"]) == ("https://10.9.0.1", "https://10.9.0.4", "")
    groups = {group["name"]: group["members"] for group in site.groups}
    assert groups == {
        "batch": "g[1-2],n[1-3]",
        "gpu": "g[1-2]",
        "short": "g1,n[1-3]",
        "feature-ib": "g[1-2],n[1-3]",
        "feature-fast": "n[1-3]",
    }
    assert any("not in /etc/hosts" in note for note in site.left_out)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ClusterName=x\n", "no NodeName"),
        ("NodeName=n[1-\n", "line 1"),
        ("NodeName=n[1-3] NodeAddr=a[1-2]\n", "3 nodes and 2 addresses"),
        ('NodeName="n1\n', "no closing quotation"),
        ("Include x\n", "in a circle"),
    ],
)
def test_a_slurm_conf_that_cannot_be_read_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(BadRequest) as told:
        slurm_site.read(text, "slurm.conf", "", lambda name: text)
    assert words in str(told.value)


def test_what_was_imported_from_files_is_a_sound_repository_without_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.conf").write_text(NODES_CONF)
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    (tmp_path / "partitions.conf").write_text(PARTITIONS)
    (tmp_path / "hosts").write_text(HOSTS)
    for options in (("--warewulf", "nodes.conf"), ("--slurm", "slurm.conf", "--hosts", "hosts")):
        files = [str(tmp_path / one) if not one.startswith("--") else one for one in options]
        assert main.run(["config", "import", str(tmp_path / options[0]), *files]) == 0
        assert "not carried over" in capsys.readouterr().out
        written = tmp_path / options[0]
        assert yaml.safe_load((written / "systems/main/nodes.yaml").read_text())["kind"] == "nodes"
        found = read_repository(written, "", "").configuration()
        assert len(found.nodes) in (3, 5)
