"""Slurm's configuration as it is made: what it says, what it refuses, and that a real slurmctld takes it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.core.nodeset import expand
from strata.schedulers.slurm.changes import difference
from strata.schedulers.slurm.conf import (
    AccountingSpec,
    Cluster,
    Gpus,
    Hardware,
    Nodes,
    Partition,
    Saving,
    Switch,
    files,
)
from strata.schedulers.slurm.hostlists import hostlist, in_order, natural
from strata.schedulers.slurm.replies import drain
from support.slurm import Slurm, own_settings, until

PLAIN = Hardware(sockets=2, cores=64, threads=2, memory=512_000)
FAT = Hardware(sockets=2, cores=32, memory=1_000_000, gpus=(Gpus(count=4, type="a100", files="/dev/nvidia[0-3]"),))


def some(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number:05d}" for number in range(1, count + 1))


def cluster(**more: object) -> Cluster:
    given = {
        "name": "main",
        "controllers": ("mgmt(10.0.0.1)",),
        "nodes": (Nodes(names=some("n", 4), hardware=PLAIN), Nodes(names=some("g", 2), hardware=FAT)),
        "partitions": (Partition(name="all", names=(*some("n", 4), *some("g", 2)), settings={"Default": "YES"}),),
    }
    return Cluster(**{**given, **more})  # type: ignore[arg-type]


def conf(**more: object) -> list[str]:
    return files(cluster(**more))["slurm.conf"].splitlines()


def test_nodes_that_are_alike_are_one_line_however_many() -> None:
    many = (Nodes(names=some("n", 10_000), hardware=PLAIN),)
    assert conf(nodes=many, partitions=())[-1] == (
        "NodeName=n[00001-10000] Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=512000"
    )


def test_accelerators_are_in_the_nodes_line_and_their_devices_in_gres_conf() -> None:
    made = files(cluster())
    assert "NodeName=g[00001-00002] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n" in made["gres.conf"]
    assert any(line.startswith("NodeName=g[") and line.endswith(" Gres=gpu:a100:4") for line in conf())
    assert "GresTypes=gpu" in conf()


def test_slurmdbd_is_told_who_it_is_and_where_its_password_is_and_not_the_password() -> None:
    kept = AccountingSpec(host="mgmt1", secret="/run/strata/secrets/slurmdbd", settings={"ArchiveJobs": "yes"})
    made = files(cluster(accounting=kept, settings={"SlurmUser": "hpc"}))
    assert "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=mgmt1\n" in made["slurm.conf"]
    said = made["slurmdbd.conf"].splitlines()
    assert {"DbdHost=mgmt1", "SlurmUser=hpc", "StorageLoc=slurm_acct_db", "ArchiveJobs=yes"} <= {*said}
    assert said[-1] == "Include /run/strata/secrets/slurmdbd"
    assert "slurmdbd.conf" not in files(cluster()), "a site's own is left alone"


def test_slurmdbd_is_spoken_to_through_the_munge_that_everybody_else_is() -> None:
    kept = AccountingSpec(host="mgmt1", secret="/s")
    assert "AccountingStoragePass=/run/m.socket" in conf(
        accounting=kept, settings={"authinfo": "ttl=60,socket=/run/m.socket"}
    )
    assert not any("StoragePass" in line for line in conf(accounting=kept))


@pytest.mark.parametrize("key", ["StoragePass", "storagepass", "Include"])
def test_a_password_is_not_said_where_everybody_sees_it(key: str) -> None:
    with pytest.raises(BadRequest, match="put it into the file of the secret"):
        files(cluster(accounting=AccountingSpec(host="mgmt1", secret="/s", settings={key: "hunter2"})))


def test_what_the_site_says_rules_in_whatever_case_it_is_written() -> None:
    said = conf(settings={"returntoservice": "1", "TaskPlugin": "", "SlurmctldParameters": "cloud_dns"})
    assert "ReturnToService=1" in said
    assert not any(line.startswith("TaskPlugin") for line in said)
    assert "SlurmctldParameters=enable_configless,cloud_dns" in said, "nodes still fetch their configuration"
    own = (Nodes(names=("n1",), hardware=PLAIN, settings={"realmemory": "1000", "Feature": "a,b"}),)
    assert "NodeName=n1 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 realmemory=1000 Feature=a,b" in conf(nodes=own)


def test_power_saving_is_done_by_our_programs_and_leaves_alone_who_stays_on() -> None:
    said = conf(saving=Saving(after=600, never=("n00001", "n00002")), programs="/opt/strata/bin")
    assert "SuspendProgram=/opt/strata/bin/strata-slurm-suspend" in said
    assert "SuspendExcNodes=n[00001-00002]" in said and "SuspendTime=600" in said


@pytest.mark.parametrize(
    "more",
    [
        {"settings": {"Prolog": "/bin/true\nEpilog=/bin/evil"}},
        {"settings": {"Prolog=/bin/true Epilog": "x"}},
        {"settings": {"NodeName": "n9"}},
        {"settings": {"Include": "/etc/shadow"}},
        {"partitions": (Partition(name="a b", names=("n1",)),)},
        {"partitions": (Partition(name="all", names=("n1",), settings={"Nodes": "ALL"}),)},
        {"nodes": (Nodes(names=("n1",), hardware=PLAIN, settings={"Reason": 'a" State="DOWN'}),)},
        {"name": "main\nx"},
        {"controllers": ()},
        {"controllers": ("a b",)},
    ],
)
def test_what_would_become_another_setting_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        files(cluster(**more))


def test_addresses_belong_to_the_names_in_their_order() -> None:
    nodes = Nodes(names=("n10", "n9", "n2"), addresses=("10.0.1.1", "10.0.0.254", "10.0.0.2"), hardware=PLAIN)
    (line,) = [line for line in conf(nodes=(nodes,), partitions=()) if line.startswith("NodeName")]
    assert line.startswith("NodeName=n2,n[9-10] NodeAddr=10.0.0.2,10.0.0.254,10.0.1.1 ")


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (("n1", "n2", "n4"), "n[1-2,4]"),
        (("x1000c0s0b0n0", "x1000c0s1b0n0"), "x1000c0s[0-1]b0n[0]"),
        (("x1000c0s0b0n0", "login"), "login,x1000c0s0b0n0"),
        (("n1a", "n2a"), "n1a,n2a"),
    ],
)
def test_nothing_stands_behind_the_last_brackets_of_a_hostlist(names: tuple[str, ...], folded: str) -> None:
    assert hostlist(names) == folded


@pytest.mark.slow
def test_more_names_than_slurm_takes_in_one_pair_of_brackets_are_several() -> None:
    assert hostlist(f"n{number:06d}" for number in range(1, 100_001)) == "n[000001-050000],n[050001-100000]"


@pytest.mark.slow
@given(st.lists(st.from_regex(r"[ab][0-3]{0,2}[a-b]?[0-2]?", fullmatch=True), unique=True, max_size=30))
def test_folded_in_order_expands_to_the_same_names_in_the_same_order(names: list[str]) -> None:
    names.sort(key=natural)
    assert expand(in_order(names)) == names


def test_what_only_a_restart_takes_over_is_told_apart() -> None:
    before = files(cluster())
    assert difference(before, before).changed == ()

    partition = difference(before, files(cluster(partitions=(Partition(name="day", names=some("n", 4)),))))
    assert partition.changed == ("slurm.conf",) and not partition.restart
    assert "+PartitionName=day Nodes=n[00001-00004]\n" in partition.text

    grown = difference(before, files(cluster(nodes=(Nodes(names=some("n", 6), hardware=PLAIN),))))
    assert (grown.added, grown.removed) == ("n[00005-00006]", "g[00001-00002]")
    assert any("nodes are new: n[00005-00006]" in why for why in grown.restart)

    less = Hardware(sockets=2, cores=64, threads=2, memory=256_000)
    other = difference(before, files(cluster(nodes=(Nodes(names=some("n", 4), hardware=less), cluster().nodes[1]))))
    assert other.restart == ("nodes have other hardware or addresses: n[00001-00004]",)

    weighed = Nodes(names=some("n", 4), hardware=PLAIN, settings={"Weight": "7"})
    assert not difference(before, files(cluster(nodes=(weighed, cluster().nodes[1])))).restart

    selecting = difference(before, files(cluster(settings={"SelectType": "select/linear"})))
    assert selecting.restart == ("selecttype is changed",)
    assert difference({}, before).restart == (), "there is nothing yet that could be restarted"


def test_what_people_wrote_is_understood() -> None:
    mine = """
SlurmctldHost=mgmt(10.0.0.1)   # in charge
slurmctldhost=other
nodename=n[00001-00004] sockets=2 \\
    corespersocket=64 ThreadsPerCore=2 RealMemory=512000 Reason="it's \\
new" state=IDLE
NodeName=DEFAULT CPUs=4
"""
    told = difference({"slurm.conf": mine}, files(cluster(nodes=(Nodes(names=some("n", 4), hardware=PLAIN),))))
    assert told.added == "" and "slurmctldhost is changed" in told.restart
    assert not any("hardware" in why for why in told.restart)


@pytest.mark.server
@pytest.mark.slow
async def test_a_real_slurmctld_takes_ten_thousand_nodes_with_gpus_and_a_tree_of_switches() -> None:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        directory = Path(name)
        plain, fat = [f"x{1000 + i // 1024}c{i // 128 % 8}s{i % 128}b0n0" for i in range(8192)], some("g", 1808)
        addresses = tuple(f"127.1.{at // 250}.{at % 250 + 1}" for at in range(10_000))
        chassis = [f"x{1000 + cabinet}c{number}" for cabinet in range(8) for number in range(8)]
        leaves = [Switch(name=one, names=tuple(f"{one}s{slot}b0n0" for slot in range(128))) for one in chassis]
        switches = (
            *leaves,
            Switch(name="gpu", names=fat),
            Switch(name="system", switches=(*(leaf.name for leaf in leaves), "gpu")),
        )
        made = files(
            cluster(
                controllers=("localhost(127.0.0.1)",),
                nodes=(
                    Nodes(names=tuple(plain), hardware=PLAIN, addresses=addresses[:8192]),
                    Nodes(names=fat, hardware=FAT, addresses=addresses[8192:]),
                ),
                partitions=(
                    Partition(name="all", names=(*plain, *fat), settings={"Default": "YES"}),
                    Partition(name="gpu", names=fat, settings={"MaxTime": "1-00:00:00"}),
                ),
                switches=switches,
                settings=own_settings(directory),
            )
        )
        lines = made["slurm.conf"].splitlines()
        assert sum(line.startswith("NodeName=") for line in lines) == 2
        scheduler = Slurm(directory, "")
        for file, text in made.items():
            (directory / file).write_text(text, encoding="utf-8")
        scheduler.start()
        try:
            await until("it runs", lambda: "Running as primary controller" in scheduler.said(), scheduler)
            counted = await scheduler.run("sinfo", "-h", "-o", "%R %D %X %Y %Z %m %G")
            assert sorted(counted.splitlines()) == [
                *("all 1808 2 32 1 1000000 gpu:a100:4", "all 8192 2 64 2 512000 (null)"),
                "gpu 1808 2 32 1 1000000 gpu:a100:4",
            ]
            listed = dict(re.findall(r"NodeName=(\S+) .*?NodeAddr=(\S+)", await scheduler.nodes()))
            assert listed == dict(zip((*plain, *fat), addresses, strict=True))
            tree = await scheduler.run("scontrol", "show", "topology")
            assert tree.count("SwitchName=") == len(switches)
            assert "SwitchName=system Level=1" in tree
            errors = [line for line in scheduler.said().splitlines() if "error:" in line]
            assert [line for line in errors if not re.search("pmix|/state/|may be lost", line, re.I)] == []
            odd = [name for name in plain if name.endswith("7b0n0")]
            await scheduler.run("scontrol", *drain(odd, "strata/1", "to try")[1:])
            drained = await scheduler.run("sinfo", "-h", "-t", "drain", "-p", "all", "-o", "%D")
            assert drained.split() == [str(len(odd))], "a place at the end of a name is understood"
        finally:
            scheduler.stop()
