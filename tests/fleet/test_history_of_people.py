"""A node's history says what people did about it, and why what it runs is in trouble."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from strata.core.model import Model
from strata.core.node import Node
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.controller.controller import Controller
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.history.transitions import PREFIX, decode
from strata.hardware.model import LAYER as HARDWARE
from strata.provisioning.agents.open import open_sets
from strata.provisioning.model import LAYER as PROVISIONING
from strata.provisioning.personalities.records import Member, Personality
from strata.store.memory import MemoryStore
from support.agent_site import FakeReleases, agent_site
from support.fake_agents import FakeAgent, http_over
from support.rooms import OpenFleet

pytestmark = pytest.mark.slow

NAME = "n00001"


class People:
    """A controller with a history, and one node that nobody can look at."""

    def __init__(self, directory: Path) -> None:
        self.store = MemoryStore()
        self.controller = Controller(
            self.store, Model.of(HARDWARE, PROVISIONING), {}, name="c1", history=directory / "history.db"
        )
        self.fleet = OpenFleet(self.controller, Settings(state_dir=directory))

    async def __aenter__(self) -> People:
        await self.controller.start()
        await self.fleet.edits.create_nodes([Node(name="n1", uid=0), Node(name="n2", uid=0)], "test")
        await self.fleet.settled(await self.store.revision())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.controller.stop()
        await self.store.close()

    async def history(self, name: str = "n1") -> list[tuple[str, str, str, str]]:
        """What, by whom and how; the newest last."""
        await self.controller.recorder.flush()
        await self.fleet.settled(await self.store.revision())
        page = await self.fleet.history(LOCAL_ADMIN, name, None, None, 100, "")
        return [(item.variable, item.new, item.source, item.cause) for item in page.items[::-1]]


async def test_holds_releases_and_desires_are_in_the_history_of_their_nodes_with_their_authors(tmp_path: Path) -> None:
    async with People(tmp_path) as people:
        edits, n1 = people.fleet.edits, people.fleet.registry.select("n1")
        await edits.hold(n1, "fan 3", "alice")
        await edits.release(n1, "bob")
        await edits.set_desires(n1, {"power": "on", "image": ["a", "b"]}, (), "carol")
        await edits.set_desires(n1, {}, ("image",), "dave")
        assert await people.history() == [
            ("hold", "held: fan 3", "alice", ""),
            ("hold", "released", "bob", ""),
            ("want", "power=on image=a|b", "carol", ""),
            ("want", "image unset", "dave", ""),
        ]
        assert await people.history("n2") == []
        before = await people.store.revision()
        await edits.release(n1, "eve")
        await edits.set_desires(n1, {"power": "on"}, (), "eve")
        assert await people.store.revision() == before, "what changes nothing is no history"


async def test_what_documents_want_is_in_the_history_of_the_nodes_that_they_are_about(tmp_path: Path) -> None:
    async with People(tmp_path) as people:
        edits = people.fleet.edits
        await edits.put_document(DesireDocument(name="d", select="n1", set={"power": ("on",)}), "alice")
        await people.fleet.settled(await people.store.revision())
        await edits.apply([DesireDocument(name="d", select="n2", set={"power": ("off",)})], "bob")
        await people.fleet.settled(await people.store.revision())
        await edits.delete_document("d", "carol")
        assert await people.history("n1") == [
            ("want", "power=on", "alice", "document d"),
            ("want", "power=off", "bob", "document d"),
        ]
        assert await people.history("n2") == [
            ("want", "power=off", "bob", "document d"),
            ("want", "", "carol", "document d"),
        ]


class FakeImages(FakeReleases):
    """Releases that know who moved them."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = SimpleNamespace(tagged=lambda reference: SimpleNamespace(author=f"who moved {reference}"))


async def test_a_promotion_is_in_the_history_of_the_nodes_that_want_it_with_its_author_and_build(
    tmp_path: Path,
) -> None:
    async with People(tmp_path) as people:
        images = FakeImages()
        images.move("debian:12", 1)
        sets = open_sets(people.fleet, images)  # type: ignore[arg-type]
        await sets.start()
        member = Member(name="system", release="debian:12")
        await sets.records.put("test", "compute", Personality(name="compute", members=(member,)))
        await sets.settled()
        await people.fleet.edits.set_desires(people.fleet.registry.select("n1"), {"image": "compute"}, (), "alice")
        await people.fleet.settled(await people.store.revision())
        async with asyncio.timeout(120):
            while not people.controller.leads("n1"):
                await people.controller.stepped()
        images.move("debian:12", 2)
        await sets.settled()
        [promoted] = [line for line in await people.history() if line[0] == "event"]
        build = sets.digest("compute").removeprefix("sha256:")[:12]
        assert promoted[1].startswith(f"compute is build {build} now: debian:12 was promoted to ")
        assert promoted[2] == "who moved debian:12"
        assert not [line for line in await people.history("n2") if line[0] == "event"]
        await sets.stop()


async def test_why_what_a_node_runs_is_in_error_is_in_its_history_and_its_build_beside_the_fact(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site, http_over(site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0.0
        agent.set |= {"name": "compute", "digest": f"sha256:{'ab' * 32}", "state": "active"}
        site.service.details.append(site.driver.builds)

        async def until(value: str) -> None:
            async with asyncio.timeout(120):
                while site.fact(NAME, "personality") != value:
                    await site.service.controller.stepped()

        await agent.exchange()
        await until("active")
        agent.set |= {"state": "error", "reason": "member a: it ended with status 3"}
        await agent.exchange()
        await until("error")
        await site.service.controller.recorder.flush()
        rows = [decode(entry.value) for entry in (await site.service.store.range(PREFIX)).entries]
        [change] = [one for row in rows for one in row.changes if (one.variable, one.new) == ("personality", "error")]
        assert (change.old, change.cause) == ("active", "member a: it ended with status 3")
        fact = (await site.service.node(LOCAL_ADMIN, NAME)).facts["image"]
        assert fact.detail == "build abababababab"
