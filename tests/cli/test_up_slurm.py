"""What ``strata up`` writes for its virtual cluster: the repository that describes it, and the files of its Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_support import Run

from strata.cli.up import background as bg
from strata.cli.up import site as up_site
from strata.cli.up import slurm as up_slurm
from strata.cli.up import virtual as up_virtual
from strata.core.errors import Conflict, Unavailable
from strata.core.host import process as ps
from strata.virtual.qemu.description import Description, Options, describe, extended


class Service:
    """Takes what is applied."""

    def __init__(self) -> None:
        self.applied: list[Any] = []

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        assert path == "/v1/config/apply"
        self.applied.append(json.loads(body)["configuration"])
        return {}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def chassis(directory: Path, nodes: int = 3) -> Description:
    return describe(Options(directory=directory / bg.CHASSIS, nodes=nodes, uefi=1))


def history(directory: Path) -> list[str]:
    command = ["git", "-C", str(directory / up_site.FOLDER), "log", "--format=%s"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_the_cluster_is_committed_and_applied_and_committed_again_only_if_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # of whoever types this
    service, found = Service(), chassis(tmp_path)
    first = up_virtual._machine(found.nodes, up_virtual.GOAL)
    whole = up_virtual._machine(found.nodes, up_virtual.DEMO_GOAL)
    up_site.describe(service, tmp_path, first, "Describe")  # type: ignore[arg-type]
    up_site.describe(service, tmp_path, first, "Describe")  # type: ignore[arg-type]
    up_site.describe(service, tmp_path, whole, "Say")  # type: ignore[arg-type]
    monkeypatch.delenv("GIT_DIR")
    assert history(tmp_path) == ["Say", "Describe"]
    assert not (tmp_path / "elsewhere").exists()
    last = service.applied[-1]
    assert (last["system"], len(last["commit"])) == ("virtual", 40)
    assert [node["name"] for node in last["nodes"]] == ["n0001", "n0002", "n0003"]
    assert [node["labels"]["firmware"] for node in last["nodes"]] == ["bios", "bios", "uefi"]
    assert last["desires"][0]["set"]["image"] == ["demo"]


@pytest.mark.slow
def test_what_its_owner_wrote_into_the_repository_is_seen(tmp_path: Path) -> None:
    machine = up_virtual._machine(chassis(tmp_path).nodes, up_virtual.DEMO_GOAL)
    assert not up_site.is_as_written(tmp_path, machine), "there is none"
    up_site.describe(Service(), tmp_path, machine, "Describe")  # type: ignore[arg-type]
    assert up_site.is_as_written(tmp_path, machine)
    assert not up_site.is_as_written(tmp_path, up_virtual._machine((), up_virtual.DEMO_GOAL))
    (tmp_path / up_site.FOLDER / "mine.yaml").write_text("kind: group\nname: mine\nmembers: n0001\n")
    assert not up_site.is_as_written(tmp_path, machine)


def test_the_two_configurations_of_slurm_differ_in_where_its_controller_is(tmp_path: Path) -> None:
    found, folder = chassis(tmp_path), tmp_path / up_slurm.FOLDER
    assert found.link is not None
    up_slurm._make_key(folder)
    up_slurm._configure(folder, found)
    inside = (folder / up_slurm.INSIDE / up_slurm.CONF).read_text().splitlines()
    here = (folder / up_slurm.CONF).read_text().splitlines()
    [(one, two)] = [pair for pair in zip(inside, here, strict=True) if pair[0] != pair[1]]
    assert one.startswith("SlurmctldHost=") and one.endswith(f"({found.server})")
    assert two == one.replace(found.server, found.link.inside)
    assert any(line.startswith("NodeName=n[0001-0003] NodeAddr=10.77.0.[11-13] ") for line in inside)


def test_what_slurms_daemons_say_they_are_is_in_a_folder_of_their_own(tmp_path: Path) -> None:
    """A slurmdbd ends the one that its pid file names, also another cluster's."""
    folder = tmp_path / up_slurm.FOLDER
    (folder / up_slurm.DATABASE).mkdir(parents=True)
    up_slurm._configure(folder, chassis(tmp_path))
    for name, line in (
        ("slurmdbd.conf", f"PidFile={folder}/slurmdbd.pid"),
        (up_slurm.CONF, f"SlurmctldPidFile={folder}/slurmctld.pid"),
    ):
        assert line in (folder / up_slurm.INSIDE / name).read_text().splitlines()


def test_the_key_is_made_once_and_only_root_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / up_slurm.FOLDER
    up_slurm._make_key(folder)
    key = (folder / up_slurm.KEY).read_bytes()
    up_slurm._make_key(folder)
    up_slurm._configure(folder, extended(chassis(tmp_path), 2, 0))
    assert (folder / up_slurm.KEY).read_bytes() == key
    assert len(key) == 128
    assert (folder / up_slurm.KEY).stat().st_mode & 0o777 == 0o400
    others = [path for path in folder.rglob("*") if path.is_file() and path.name != up_slurm.KEY]
    assert others and not any(key in path.read_bytes() for path in others)


def test_a_cluster_keeps_the_slurm_that_it_was_made_with_or_without(tmp_path: Path) -> None:
    assert [up_virtual._has_slurm(tmp_path, asked) for asked in (None, True, False)] == [True, True, False]
    bg.set_up(tmp_path, "virtual")
    assert [up_virtual._has_slurm(tmp_path, asked) for asked in (None, False)] == [False, False]
    with pytest.raises(Conflict, match="without a Slurm"):
        up_virtual._has_slurm(tmp_path, True)
    (tmp_path / up_slurm.FOLDER).mkdir()
    assert up_virtual._has_slurm(tmp_path, None)
    with pytest.raises(Conflict, match="with a Slurm"):
        up_virtual._has_slurm(tmp_path, False)


def test_a_simulated_fleet_has_no_slurm(run: Run, tmp_path: Path) -> None:
    result = run("up", "--simulated", "--slurm", "--state-dir", tmp_path / "state")
    assert result.code == 1 and "--slurm" in result.err
    assert not (tmp_path / "state").exists()


@pytest.mark.server
def test_stop_ends_the_daemons_of_slurm_after_the_service(run: Run, short_dir: Path) -> None:
    names = (bg.SERVICE, up_slurm.SLURMCTLD, up_slurm.MUNGED)
    started = {
        name: ps.spawn([sys.executable, "-c", "import time; time.sleep(600)"], {}, short_dir / "log") for name in names
    }
    for name, process in started.items():
        process.save(short_dir / name)
    said = run("stop", "--state-dir", short_dir).lines
    pids = [started[name].pid for name in names]
    words = zip(("the service", "slurmctld", "munged"), pids, strict=True)
    assert said[:3] == [f"stopped {what} (pid {pid})" for what, pid in words]
    assert not any(process.alive for process in started.values())


class Commands:
    """Slurm's commands, as a cluster would answer them: ``looks`` one after the other, the last again and again."""

    def __init__(self, *looks: str) -> None:
        self._looks = list(looks)
        self.jobs: list[tuple[str, ...]] = []

    def run(self, directory: Path, chassis: Description, *command: str) -> str:
        if command[0] == "sinfo":
            look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
            return "".join(f"n000{at} {state}\n" for at, state in enumerate(look.split(), 1))
        self.jobs.append(command)
        return "n0002\nn0001\n"


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        (("unknown* idle", "idle* idle", "idle completing", "idle idle"), "srun -N2 hostname: n0001 n0002"),
        (("idle idle drained*",), "srun -N2 hostname: n0001 n0002"),
        (("idle allocated",), ""),
        (("drained drained*",), ""),
    ],
)
def test_a_job_is_run_where_it_disturbs_nobody(
    looks: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(*looks)
    monkeypatch.setattr(up_slurm, "run", commands.run)
    monkeypatch.setattr(up_slurm, "_POLL", 0.0)
    names = ["n0001", "n0002", "n0003"]
    assert up_slurm.prove(tmp_path, chassis(tmp_path), names, 60.0) == said
    assert [command[:2] for command in commands.jobs] == ([("srun", "-N2")] if said else [])


def test_nodes_that_do_not_become_idle_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_slurm, "run", Commands("idle down*").run)
    with pytest.raises(Unavailable, match=r"n0002 is down\*"):
        up_slurm.prove(tmp_path, chassis(tmp_path), ["n0001", "n0002"], 0.0)
