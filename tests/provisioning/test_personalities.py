"""Personalities: what may be written, what they stand for, what each node gets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, NotFound, Unavailable
from strata.core.node import Interface, Node
from strata.provisioning.personalities.records import File, Member, Mount, Personality, Ready, check, fill
from strata.provisioning.personalities.resolve import Personalities
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Delete, Put
from support.agent_site import FakeReleases

NODE = Node(
    name="n1",
    uid=1,
    nid=7,
    location="x1000c0s0b0n0",
    role="login",
    labels={"rack": "r3"},
    interfaces=(Interface(mac="52:54:00:00:00:01"), Interface(address="10.0.0.1")),
)


class World:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.releases = FakeReleases()
        self.releases.move("debian:12", 1)
        self.changed: list[str] = []
        self._told = asyncio.Event()
        self.sets = Personalities(self.store, Ledger(self.store), self.releases, changed=self._changed)

    def _changed(self, name: str) -> None:
        self.changed.append(name)
        self._told.set()

    async def told(self) -> None:
        """Until a change was told since this was last asked."""
        await asyncio.wait_for(self._told.wait(), 60)
        self._told.clear()

    async def put(self, personality: Personality) -> None:
        await self.sets.records.put("test", personality.name, personality)
        await self.sets.settled()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.sets.start()
    yield made
    await made.sets.stop()
    await made.store.close()


def one(name: str = "compute", release: str = "debian:12", **more: Any) -> Personality:
    return Personality(name=name, members=(Member(name="system", release=release, **more),))


@pytest.mark.parametrize(
    "wrong",
    [
        Personality(name="s", members=(Member(name="a", release="x:1"), Member(name="a", release="y:1"))),
        one(ready=Ready(kind="file")),
        one(ready=Ready(kind="tcp")),
        one(ready=Ready(kind="command")),
        one(files=(File(path="/etc/../root"),)),
        one(files=(File(path="/"),)),
        one(mounts=(Mount(source="/run", target="/a//b"),)),
        one(files=tuple(File(path=f"/{i}", content="x" * 40_000) for i in range(2))),
    ],
)
def test_what_cannot_be_is_refused(wrong: Personality) -> None:
    with pytest.raises(BadRequest):
        check(wrong)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "s", "members": []}',
        '{"name": "../s", "members": [{"name": "a", "release": "x:1"}]}',
        '{"name": "s", "members": [{"name": "a", "release": "x:1", "mode": "disk"}]}',
        '{"name": "s", "members": [{"name": "a", "release": "x:1", "typo": 1}]}',
        '{"name": "s", "members": [{"name": "a", "release": "x:1", "env": {"A=B": "c"}}]}',
        '{"name": "s", "members": [{"name": "a", "release": "x:1", "files": [{"path": "etc/x"}]}]}',
    ],
)
def test_what_is_not_well_formed_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Personality)


def test_a_node_finds_its_own_words_and_other_braces_stay() -> None:
    text = '{node} {nid} {location} {address} {role} {label:rack}{label:none} | {} { x } {3} {a,b} {"a": {"b": 1}}'
    assert fill(text, NODE) == 'n1 7 x1000c0s0b0n0 10.0.0.1 login r3 | {} { x } {3} {a,b} {"a": {"b": 1}}'
    check(one(files=(File(path="/etc/motd", content=text),)))


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("{{node}}", "{node}"),
        ("{{nodename}}", "{nodename}"),
        ("{{{node}}}", "{{node}}"),
        ("{{ node }}", "{{ node }}"),
        ("${node} ${HOME}", "${node} ${HOME}"),
        ("awk '{{print}}'", "awk '{print}'"),
    ],
)
def test_a_doubled_brace_is_a_brace_and_a_dollar_leaves_the_word_to_the_shell(written: str, found: str) -> None:
    check(one(files=(File(path="/x", content=written),)))
    assert fill(written, NODE) == found


@pytest.mark.parametrize("word", ["nodename", "Node", "label:", "labels:rack", "node.name", "hostname"])
def test_a_word_that_no_node_has_is_refused_with_those_that_there_are(word: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check(one(files=(File(path="/etc/hostname", content=f"# the name\n{{{word}}}\n"),)))
    said = str(refused.value)
    assert f"{{{word}}} in line 2" in said and "/etc/hostname" in said
    assert "{node}, {nid}, {location}, {address}, {role}, {label:KEY}" in said
    assert f"{{{{{word}}}}}" in said, "how to have it all the same"


def test_a_set_that_was_stored_before_keeps_the_words_that_no_node_has() -> None:
    assert fill("{nodename}", NODE) == "{nodename}"


async def test_the_digest_is_of_what_runs_and_not_of_what_is_a_nodes_own_or_says_that_it_may(world: World) -> None:
    await world.put(one(files=(File(path="/etc/hostname", content="{node}"),)))
    got = json.loads(bytes(world.sets.for_node("compute", NODE)))
    assert base64.b64decode(got["members"][0].pop("files")[0]["content"]) == b"n1"
    for member in got["members"]:
        member["release"] = {name: member["release"][name] for name in ("image", "squashfs", "config")}
    plain = {"name": got["name"], "members": got["members"]}
    told = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert got["digest"] == "sha256:" + hashlib.sha256(told).hexdigest() == world.sets.digest("compute")
    before = got["digest"]
    await world.put(one(files=(File(path="/etc/hostname", content="{node}!"),)))
    assert world.sets.digest("compute") != before, "another text is another set"


async def test_how_often_readiness_is_looked_at_is_in_the_digest_only_where_somebody_said(world: World) -> None:
    await world.put(one(ready=Ready(kind="tcp", port=22)))
    told = json.loads(bytes(world.sets.for_node("compute", NODE)))["members"][0]["ready"]
    assert "every" not in told, "what nodes ran before keeps its digest"
    await world.put(one(ready=Ready(kind="tcp", port=22, every=10)))
    assert json.loads(bytes(world.sets.for_node("compute", NODE)))["members"][0]["ready"]["every"] == 10


async def test_a_set_without_files_is_the_same_for_all(world: World) -> None:
    await world.put(one())
    other = msgspec.structs.replace(NODE, name="n2")
    assert world.sets.for_node("compute", NODE) is world.sets.for_node("compute", other)


async def test_a_tag_that_moves_changes_the_sets_that_use_it_and_no_others(world: World) -> None:
    world.releases.move("alpine:3", 1)
    await world.put(one())
    await world.put(one("other", "alpine:3"))
    world.changed.clear()
    before = world.sets.digest("compute")
    world.releases.move("debian:12", 2)
    await world.sets.settled()
    assert world.changed == ["compute"] and world.sets.digest("compute") != before
    assert world.sets.name_of(before) == "" and world.sets.name_of(world.sets.digest("compute")) == "compute"


async def test_a_set_whose_image_is_gone_says_so_and_comes_back_with_it(world: World) -> None:
    with pytest.raises(BadRequest, match="no such image"):
        await world.sets.trial(one(release="gone:1"))
    await world.put(one(release="gone:1"))
    assert world.sets.digest("compute") == "" and "no such image" in world.sets.problem("compute")
    with pytest.raises(Unavailable, match="no such image"):
        world.sets.for_node("compute", NODE)
    world.releases.move("gone:1", 1)
    await world.sets.settled()
    assert world.sets.digest("compute") and world.sets.problem("compute") == ""


async def test_what_other_controllers_change_is_followed(world: World) -> None:
    await world.store.txn([Put("personality/compute", msgspec.msgpack.encode(one()))])
    await world.told()
    assert list(world.sets.records.all) == ["compute"]
    await world.store.txn([Delete("personality/compute")])
    await world.told()
    with pytest.raises(NotFound):
        world.sets.records.get("compute")
