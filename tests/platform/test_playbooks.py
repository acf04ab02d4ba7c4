"""Playbook layers, run by the real ansible-playbook over ssh: only where something changed, a canary first, failing
nodes later, nodes that were away when they are back."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.core.node import Interface, Node
from strata.core.nodeset import fold
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.alarm import Alarm
from strata.fleet.fleet import Fleet
from strata.platform.config.reading import read_repository
from strata.platform.config.service import ConfigService
from strata.platform.playbooks import service as playbooks
from strata.platform.playbooks.records import Again, PlaybookDetail
from strata.platform.playbooks.run import Answer
from strata.platform.playbooks.service import PlaybookService
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.platform_fleet import platform_fleet, until
from support.site_repository import SiteRepository, small_site
from support.ssh_server import sshd

PLAYBOOK = """- hosts: all
  gather_facts: false
  tasks:
    - name: say hello
      raw: "echo {{ greeting }} >> {{ out }}/{{ inventory_hostname }}"
    - name: say who runs it
      raw: "echo {{ lookup('pipe', 'id -un') }} > {{ out }}/ran_as"
    - name: break
      raw: exit 1
      when: inventory_hostname == broken
    - name: keep quiet
      raw: echo hunter2 >&2; exit 1
      no_log: true
      when: inventory_hostname == quiet
"""
NAMES = [f"n{number}" for number in range(1, 5)]


def layer(site: SiteRepository, commit: str, **values: str) -> str:
    said = {"greeting": "hello", "broken": "nobody", "quiet": "nobody", **values}
    return (
        f"kind: playbook\nname: base\nselect: n[1-4]\nurl: {site.directory}\npath: plays/base.yaml\n"
        f"commit: {commit}\nvars: {said}\ntimeout: 5m\n"
    )


@pytest.fixture
def site(tmp_path: Path) -> SiteRepository:
    return small_site(tmp_path / "site")


@pytest.fixture
def plays(tmp_path: Path) -> SiteRepository:
    found = SiteRepository(tmp_path / "plays")
    found.commit({"plays/base.yaml": PLAYBOOK})
    return found


@pytest.fixture
def out() -> Iterator[Path]:
    """Where nodes write, whoever they are logged in as."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Fleet]:
    nodes = [
        Node(
            name=name,
            uid=0,
            nid=number,
            interfaces=(Interface(mac=f"52:54:00:00:00:0{number}", address=f"127.0.0.1{number}", name="boot"),),
        )
        for number, name in enumerate(NAMES, 1)
    ]
    sim = SimNodes(len(nodes), names=NAMES, timing=Timing(scale=0))
    async with platform_fleet(directory, nodes, PlaybookService, sim=sim, put=[sim]) as fleet:
        yield fleet


async def up(fleet: Fleet, *names: str) -> None:
    """Let nodes run their system, and be seen to."""
    chosen = np.array([NAMES.index(name) for name in names], dtype=np.int64)
    fleet.of(SimNodes).put(chosen, now=time.monotonic(), power="on", os="up")
    fleet.controller.look_soon(names)
    nodes = np.array([fleet.registry.index_of(name) for name in names], dtype=np.int64)
    await until(lambda: bool(fleet.view.fact_mask("os", "up")[nodes].all()))


async def put(fleet: Fleet, site: SiteRepository, text: str) -> None:
    site.commit({"site/playbooks.yaml": text})
    configuration = read_repository(site.directory, "HEAD").configuration()
    await fleet.of(ConfigService).apply(LOCAL_ADMIN, configuration)


async def had(fleet: Fleet) -> PlaybookDetail:
    return await fleet.of(PlaybookService).one(LOCAL_ADMIN, "base")


@pytest.mark.slow
@pytest.mark.server
async def test_a_playbook_reaches_nodes_by_ssh_once_without_the_services_rights(
    tmp_path: Path, site: SiteRepository, plays: SiteRepository, out: Path
) -> None:
    keys = out / "ssh"
    keys.mkdir()
    with sshd(keys, "127.0.0.*") as config:
        if not os.geteuid():
            shutil.chown(config, "nobody")
            shutil.chown(keys / "known", "nobody")
        text = config.read_text(encoding="utf-8").replace(f"IdentityFile {keys}/user\n", "")
        config.write_text(text.replace("StrictHostKeyChecking no", "StrictHostKeyChecking yes"), encoding="utf-8")
        async with opened(tmp_path) as fleet:
            settings = fleet.settings
            section = msgspec.structs.replace(
                settings.section(playbooks.PlatformSettings), ssh_config=config, playbook_key=keys / "user"
            )
            fleet.settings = msgspec.structs.replace(settings, platform=section)  # type: ignore[call-arg]
            await up(fleet, *NAMES[:3])
            commit = plays.git("rev-parse", "HEAD")
            await put(fleet, site, layer(plays, commit, out=str(out), quiet="n3"))
            service = fleet.of(PlaybookService)
            await until(
                lambda: (found := service._had.find("base")) is not None and bool(found.failures or found.trouble)
            )
            assert service._now(service.records.get("base")).trouble == ""
            await until(lambda: len(service._now(service.records.get("base")).failures) == 1)
            found = await had(fleet)
            assert (found.nodes, found.done, found.failing, found.waiting, found.trouble) == (4, 2, 1, 1, "")
            (failure,) = found.failures
            assert failure.node == "n3" and "no_log" in failure.why and "hunter2" not in str(found)
            assert not (out / "n4").exists(), "it is away"
            await up(fleet, "n4")
            service._round.soon()
            await until(lambda: (out / "n4").exists())
            assert {name: (out / name).read_text(encoding="utf-8") for name in ("n1", "n2", "n4")} == dict.fromkeys(
                ("n1", "n2", "n4"), "hello\n"
            ), "each has had it once"
            ran_as = (out / "ran_as").read_text(encoding="utf-8").strip()
            assert ran_as == (pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody")


def quickly(fleet: Fleet, answers: dict[str, str]) -> list[list[str]]:
    """In the place of ansible-playbook: the batches that were run; ``answers`` says who fails."""
    batches: list[list[str]] = []

    async def answer(entry: Any, nodes: Any) -> Answer:
        names = list(fleet.view.names(nodes))
        batches.append(names)
        return Answer(failed={name: why for name, why in answers.items() if name in names})

    fleet.of(PlaybookService)._answer = answer  # type: ignore[method-assign]
    return batches


async def rounds(fleet: Fleet) -> None:
    await fleet.of(PlaybookService)._go_round()


@pytest.mark.slow
async def test_something_new_is_tried_on_one_node_then_on_batches_and_nobody_gets_it_twice(
    tmp_path: Path, site: SiteRepository, plays: SiteRepository
) -> None:
    async with opened(tmp_path) as fleet:
        await fleet.of(PlaybookService)._round.stop()
        batches = quickly(fleet, {})
        await up(fleet, *NAMES)
        commit = plays.git("rev-parse", "HEAD")
        await put(fleet, site, layer(plays, commit) + "batch: 2\n")
        await rounds(fleet)
        assert batches == [["n1"], ["n2", "n3"], ["n4"]]
        await put(fleet, site, layer(plays, commit) + "batch: 3\n")
        await rounds(fleet)
        assert len(batches) == 3, "what nodes get is the same"
        await put(fleet, site, layer(plays, commit, greeting="hi") + "batch: 3\n")
        await rounds(fleet)
        assert batches[3:] == [["n1"], ["n2", "n3", "n4"]], "another variable makes another layer"
        await fleet.of(PlaybookService).again(LOCAL_ADMIN, "base", Again(select="n2"))
        await rounds(fleet)
        assert batches[5:] == [["n2"]]


@pytest.mark.slow
async def test_a_node_that_fails_is_tried_later_and_later_and_told_of_and_a_failed_canary_stops_it(
    tmp_path: Path, site: SiteRepository, plays: SiteRepository
) -> None:
    async with opened(tmp_path) as fleet:
        await fleet.of(PlaybookService)._round.stop()
        told: list[tuple[str, str]] = []

        def noted(nodes: Any, what: str, source: str) -> None:
            told.append((fold(fleet.view.names(nodes)), "failed" if what.endswith("failed") else ""))

        fleet.controller.record_event = noted  # type: ignore[method-assign]
        alarms: list[Alarm] = []
        fleet.alarms.append(alarms.append)
        answers = {"n1": "break: password=hunter2 is wrong"}
        batches = quickly(fleet, answers)
        now = [fleet.controller.clock.wall()]
        fleet.controller.clock.wall = lambda: now[0]  # type: ignore[method-assign]
        await up(fleet, *NAMES)
        await put(fleet, site, layer(plays, plays.git("rev-parse", "HEAD")))
        for wait in (0, playbooks.FIRST + 1, 2 * playbooks.FIRST + 1):
            now[0] += wait
            await rounds(fleet)
            await rounds(fleet)
        assert batches == [["n1"]] * 3, "nobody has had it: one node is tried"
        found = await had(fleet)
        assert (found.failing, found.waiting) == (1, 3)
        assert "hunter2" not in str(found) + str(alarms)
        assert [(one.node, one.severity) for one in alarms if one.node] == [("n1", "warning")]
        answers.clear()
        now[0] += 4 * playbooks.FIRST + 1
        await rounds(fleet)
        assert batches[3:] == [["n1"], ["n2", "n3", "n4"]]
        assert [one.severity for one in alarms if one.node] == ["warning", "ok"]
        assert told == [("n1", "failed")] * 3 + [("n1", ""), ("n[2-4]", "")], "the history of each node has it"


@pytest.mark.slow
async def test_a_commit_that_nobody_pushed_is_trouble_of_the_layer_and_no_nodes_failure(
    tmp_path: Path, site: SiteRepository, plays: SiteRepository
) -> None:
    async with opened(tmp_path) as fleet:
        await up(fleet, *NAMES)
        await put(fleet, site, layer(plays, "0" * 40))
        service = fleet.of(PlaybookService)
        await until(lambda: (found := service._had.find("base")) is not None and bool(found.trouble))
        found = await had(fleet)
        assert "no branch has the commit 000000000000" in found.trouble
        assert (found.failing, found.waiting) == (0, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("commit: main\n", "line 4, column 9"),
        (f"commit: {'a' * 40}\nvars: {{db_password: x}}\n", "looks like a secret"),
        ("", "must have a commit"),
        (f"commit: {'a' * 40}\ntimeout: 1s\n", "line 5, column 10"),
    ],
)
def test_what_is_wrong_with_a_layer_is_said_with_its_place(site: SiteRepository, text: str, words: str) -> None:
    site.write({"site/p.yaml": "kind: playbook\nname: p\n{select: n1, path: a.yaml}\n"})
    site.write({"site/p.yaml": f"kind: playbook\nname: p\nselect: n1\n{text}path: a.yaml\n"})
    with pytest.raises(BadRequest, match=rf"site/p.yaml, line.*{words}|{words}"):
        read_repository(site.directory).configuration()
