"""Configuration in a running service: planned, applied all or nothing, reverted, followed on a branch."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from strata.cli import main
from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.core.node import Interface, Node
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.controller import Controller
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.service import NodeService
from strata.fleet.registry.whole_edits import Prepared, WholeEdit
from strata.fleet.settings import LeadershipSettings, ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.platform.config.maintenance import parse as parse_window
from strata.platform.config.reading import read_repository
from strata.platform.config.records import (
    Approval,
    ConfigDone,
    ConfigPlan,
    ConfigStatus,
    Configuration,
    NodeEntry,
    Pause,
    WatchSpec,
)
from strata.platform.config.service import ConfigService
from strata.store.audit import verify
from strata.store.open import open_store
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet
from support.site_repository import GROUPS, NODES, SiteRepository, small_site

pytestmark = pytest.mark.slow


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def service(directory: Path) -> AsyncIterator[Fleet]:
    settings = Settings(
        state_dir=directory / "state",
        controller_id="c1",
        layers=("hardware", "provisioning", "platform"),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
    )
    async with running(settings) as fleet:
        yield fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Nothing but the fleet's own rooms and the configuration: no images, so no personalities."""
    settings = Settings(state_dir=tmp_path / "state", controller_id="c1")
    settings.state_dir.mkdir()
    store = open_store("memory:")
    nodes = SimNodes(8, timing=Timing(scale=0))
    controller = Controller(
        store,
        BUILT_IN,
        {**sim_drivers(nodes, time.monotonic)},
        name="c1",
        history=settings.history_file,
        leadership=LeadershipSettings(shards=1),
    )
    found = OpenFleet(controller, settings)
    found.parts.push_async_callback(store.close)
    await found.keep(found.put(ConfigService(found)))
    await found.start()
    try:
        await until(lambda: bool(controller.leadership.epochs))
        yield found
    finally:
        await found.stop()


@pytest.fixture
def site(tmp_path: Path) -> SiteRepository:
    return small_site(tmp_path / "site")


def at_head(site: SiteRepository) -> Configuration:
    return read_repository(site.directory, "HEAD").configuration()


async def plan(fleet: Fleet, configuration: Configuration) -> ConfigPlan:
    return await fleet.of(ConfigService).plan(LOCAL_ADMIN, configuration)


async def apply(fleet: Fleet, configuration: Configuration, *, remove_most: bool = False) -> ConfigDone:
    return await fleet.of(ConfigService).apply(LOCAL_ADMIN, configuration, remove_most=remove_most)


async def status(fleet: Fleet) -> ConfigStatus:
    return await fleet.of(ConfigService).status(LOCAL_ADMIN)


def said(changes: ConfigPlan | ConfigDone) -> list[tuple[str, str, str]]:
    return [(change.kind, change.name, change.action) for change in changes.changes]


FIRST = [("node", "n[1-4]", "created"), ("group", "compute", "created"), ("desire", "compute-on", "created")]


async def test_what_is_planned_is_what_is_done_and_a_second_time_changes_nothing(
    fleet: Fleet, site: SiteRepository
) -> None:
    planned = await plan(fleet, at_head(site))
    assert said(planned) == FIRST
    assert planned.changes[0].count == 4
    assert not await fleet.ledger.latest(1), "a plan changes nothing"
    done = await apply(fleet, at_head(site))
    assert said(done) == FIRST
    assert fleet.registry.node("n3").labels == {"rack": "r2"}
    assert fleet.view.names(np.flatnonzero(fleet.registry.groups.mask("compute"))) == ["n1", "n2", "n3", "n4"]
    assert fleet.registry.desires.of(fleet.registry.index_of("n1"))[0].author.startswith("git:")
    again = await apply(fleet, at_head(site))
    assert (again.changes, again.unchanged, again.revision) == ((), 6, done.revision)


async def test_an_apply_is_one_transaction_with_its_commit_in_the_audit_log(fleet: Fleet, site: SiteRepository) -> None:
    done = await apply(fleet, at_head(site))
    keys = ("node/n1", "node/n4", "group/compute", "desire/doc/compute-on")
    assert {fleet.registry.modified(key) for key in keys} == {done.revision}
    (entry,) = [entry for entry in await fleet.ledger.latest(20) if entry.action == "config.apply"]
    assert (entry.author, entry.target) == (LOCAL_ADMIN.name, at_head(site).commit)
    assert entry.detail["commit"] == at_head(site).commit
    assert (await verify(fleet.store)).ok


async def test_a_plan_says_which_mutations_on_which_nodes_and_what_they_disrupt(
    fleet: Fleet, site: SiteRepository
) -> None:
    await apply(fleet, at_head(site))
    site.commit({"site/more.yaml": "kind: desire\nname: off\nselect: n2\nset: {power: off}\n"})
    found = await plan(fleet, at_head(site))
    assert said(found) == [("desire", "off", "created")]
    assert found.nodes == 1
    assert [one.nodeset for one in found.classes] == ["n2"]
    site.commit({"site/more.yaml": "kind: group\nname: spare\nmembers: n[3-4]\n"})
    assert (await plan(fleet, at_head(site))).classes == (), "a group that nobody selects by moves nobody"


async def test_reverting_a_commit_brings_everything_back(fleet: Fleet, site: SiteRepository) -> None:
    await apply(fleet, at_head(site))
    await fleet.edits.create_nodes([Node(name="mine", uid=0)], "ann")
    before = {name: fleet.registry.node(name) for name in ("n1", "n2", "n3", "n4")}
    changed = NODES.replace("{name: n1, nid: 1,", "{name: n1, nid: 1, location: x1000c0s0b0n0,").replace("r2", "r9")
    site.commit(
        {
            "site/nodes.yaml": changed + "  - {name: n5, nid: 5}\n",
            "site/groups.yaml": GROUPS.replace("n[1-4]", "n[1-5]") + "---\nkind: group\nname: new\nmembers: n5\n",
        }
    )
    await apply(fleet, at_head(site))
    assert fleet.registry.node("n1").location == "x1000c0s0b0n0"
    assert fleet.registry.node("n5").nid == 5
    site.git("revert", "--no-edit", "HEAD")
    done = await apply(fleet, at_head(site))
    assert ("node", "n5", "removed") in said(done) and ("group", "new", "removed") in said(done)
    assert {name: fleet.registry.node(name) for name in before} == before
    assert fleet.registry.find("n5") < 0
    assert "new" not in fleet.registry.groups
    assert fleet.registry.find("mine") >= 0, "what did not come from the repository is not removed with it"


async def test_what_the_repository_does_not_say_is_left_alone(fleet: Fleet, site: SiteRepository) -> None:
    await apply(fleet, at_head(site))
    known = fleet.registry.node("n1")
    spec = Node(name="n1", uid=0, nid=1, labels=known.labels, bmc="http://127.0.0.1:1/n1", role="compute")
    await fleet.settled(await fleet.edits.replace_node("n1", spec, "discovery"))
    assert (await apply(fleet, at_head(site))).changes == ()
    assert fleet.registry.node("n1").bmc == "http://127.0.0.1:1/n1"
    spec = Node(name="n1", uid=0, nid=1, labels={"rack": "by-hand"}, bmc="http://127.0.0.1:1/n1", role="compute")
    await fleet.settled(await fleet.edits.replace_node("n1", spec, "ann"))
    (change,) = (await apply(fleet, at_head(site))).changes
    assert (change.name, change.detail) == ("n1", "label rack by-hand → r1")


async def test_what_somebody_writes_while_it_is_compared_is_not_undone(
    fleet: Fleet, site: SiteRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(fleet, at_head(site))
    prepare, told = fleet.edits.prepare, asyncio.Event()

    async def late(edit: WholeEdit, author: str) -> Prepared:
        """Somebody finds out where the BMC is, after the difference was taken and before it is written."""
        if not told.is_set():
            told.set()
            known = fleet.registry.node("n1")
            found = msgspec.structs.replace(known, bmc="http://127.0.0.1:1/n1")
            await fleet.settled(await fleet.edits.replace_node("n1", found, "discovery"))
        return await prepare(edit, author)

    monkeypatch.setattr(fleet.edits, "prepare", late)
    site.commit({"site/nodes.yaml": NODES.replace("r1", "r7")})
    await apply(fleet, at_head(site))
    assert told.is_set()
    assert (fleet.registry.node("n1").labels["rack"], fleet.registry.node("n1").bmc) == ("r7", "http://127.0.0.1:1/n1")


async def test_what_a_commit_wants_of_a_node_is_in_its_history(fleet: Fleet, site: SiteRepository) -> None:
    await apply(fleet, at_head(site))
    site.commit({"site/groups.yaml": GROUPS.replace("power: on", "power: off")})
    await apply(fleet, at_head(site))
    async with asyncio.timeout(60):
        while True:
            page = await fleet.of(NodeService).history(LOCAL_ADMIN, "n1", None, None, 100, "")
            wants = [item for item in page.items if item.variable == "want"]
            if wants:
                break
            await asyncio.sleep(0.02)
    assert "power=off" in str(wants[0]) and "git:" in str(wants[0])


async def test_nodes_may_swap_places_in_one_commit(fleet: Fleet, site: SiteRepository) -> None:
    await apply(fleet, at_head(site))
    swapped = NODES.replace("nid: 1,", "nid: 9,").replace("nid: 2,", "nid: 1,").replace("nid: 9,", "nid: 2,")
    site.commit({"site/nodes.yaml": swapped})
    await apply(fleet, at_head(site))
    assert [fleet.registry.node(name).nid for name in ("n1", "n2")] == [2, 1]
    assert fleet.registry.names[fleet.registry.at_nid(2)] == "n1"


async def test_a_place_that_belongs_to_somebody_else_stops_all_of_it(fleet: Fleet, site: SiteRepository) -> None:
    await fleet.edits.create_nodes([Node(name="mine", uid=0, nid=3)], "ann")
    with pytest.raises(Conflict, match="NID 3 is that of mine"):
        await apply(fleet, at_head(site))
    assert fleet.registry.find("n1") < 0
    assert "compute" not in fleet.registry.groups


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: desire\nname: d\nselect: n1\nset: {powr: on}\n", "powr"),
        ("kind: desire\nname: d\nselect: n1\nset: {power: sideways}\n", "sideways"),
        ("kind: desire\nname: d\nselect: 'state:ready'\nset: {power: on}\n", "state or fact"),
        ("kind: group\nname: d\nmembers: n[8-9]\n", "there is no node n[8-9]"),
    ],
)
async def test_what_this_fleet_cannot_have_is_said_with_its_place_and_nothing_is_applied(
    fleet: Fleet, site: SiteRepository, text: str, words: str
) -> None:
    site.commit({"site/bad.yaml": text})
    for ask in (plan, apply):
        with pytest.raises(BadRequest) as caught:
            await ask(fleet, at_head(site))  # type: ignore[operator]
        assert "site/bad.yaml, line 2, column 7" in str(caught.value), caught.value
        assert words in str(caught.value)
    assert len(fleet.registry) == 0


@pytest.mark.server
async def test_a_personality_needs_its_images_and_a_desire_its_personality(
    tmp_path: Path, site: SiteRepository
) -> None:
    async with service(tmp_path) as fleet:
        for text, words in (
            ("kind: desire\nname: d\nselect: n1\nset: {image: nothing}\n", "no personality named nothing"),
            ("kind: personality\nname: d\nmembers: [{name: system, release: 'a:1'}]\n", "a:1"),
        ):
            site.commit({"site/bad.yaml": text})
            with pytest.raises(BadRequest, match=words) as caught:
                await apply(fleet, at_head(site))
            assert "site/bad.yaml, line 2, column 7" in str(caught.value)


async def test_a_commit_that_removes_much_is_braked_and_says_how_much(fleet: Fleet, site: SiteRepository) -> None:
    await apply(fleet, at_head(site))
    few = NODES.rsplit("\n", 3)[0] + "\n"
    site.commit({"site/nodes.yaml": few, "site/groups.yaml": GROUPS.replace("n[1-4]", "n[1-2]")})
    planned = await plan(fleet, at_head(site))
    assert planned.removes == 2
    assert planned.refused == "it would forget 2 of the 4 nodes that came from the configuration"
    with pytest.raises(Refused, match="2 of the 4 nodes"):
        await apply(fleet, at_head(site))
    assert len(fleet.registry) == 4
    await apply(fleet, at_head(site), remove_most=True)
    assert len(fleet.registry) == 2
    assert (await fleet.store.get("node/n4")) is None


async def test_what_was_said_of_a_removed_node_goes_with_it(fleet: Fleet, site: SiteRepository) -> None:
    await apply(fleet, at_head(site))
    four = np.array([fleet.registry.index_of("n4")])
    await fleet.edits.set_desires(four, {"power": "off"}, (), "ann")
    revision = await fleet.edits.put_group("hand-made", np.array([fleet.registry.index_of("n4")]), "ann")
    await fleet.settled(revision)
    site.commit(
        {"site/nodes.yaml": NODES.rsplit("\n", 2)[0] + "\n", "site/groups.yaml": GROUPS.replace("n[1-4]", "n[1-3]")}
    )
    await apply(fleet, at_head(site))
    assert fleet.registry.groups["hand-made"].members == ()
    await fleet.settled(max([await fleet.store.revision()]))
    site.git("revert", "--no-edit", "HEAD")
    await apply(fleet, at_head(site))
    (wanted,) = fleet.registry.desires.of(fleet.registry.index_of("n4"))
    assert (wanted.variable, wanted.values) == ("power", ("on",)), "the new n4 has nothing of the old one"


async def test_a_frozen_group_is_not_removed_by_a_commit(fleet: Fleet, site: SiteRepository) -> None:
    await apply(fleet, at_head(site))
    await fleet.settled(await fleet.edits.freeze("group:compute", "burn-in", "ann"))
    site.commit({"site/groups.yaml": "kind: desire\nname: compute-on\nselect: n1\nset: {power: on}\n"})
    with pytest.raises(Refused, match="frozen"):
        await apply(fleet, at_head(site))


async def test_more_than_one_transaction_takes_is_remembered_from_the_beginning(
    fleet: Fleet, site: SiteRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(fleet.ledger), "room", property(lambda self: 3))
    commit, calls = fleet.ledger.commit, 0

    async def breaks_off(*given: object, **more: object) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Refused("the machine was switched off here", by="test")
        return await commit(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet.ledger, "commit", breaks_off)
    with pytest.raises(Refused, match="switched off"):
        await apply(fleet, at_head(site))
    monkeypatch.setattr(fleet.ledger, "commit", commit)
    await fleet.settled(await fleet.store.revision())
    assert 0 < len(fleet.registry) < 4
    empty = Configuration(commit="0" * 40, nodes=(NodeEntry(name="other"),))
    await apply(fleet, empty, remove_most=True)
    assert [name for name in fleet.registry.names if name] == ["other"], "what was half there could be taken away"


@pytest.mark.server
async def test_what_a_running_service_holds_becomes_a_repository_that_changes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with service(tmp_path) as fleet:
        first = Node(
            name="n1",
            uid=0,
            location="x1000c0s0b0n0",
            nid=7,
            labels={"rack": "on", "row": "1.10"},
            bmc="http://127.0.0.1:1/n1",
            interfaces=(Interface(mac="52:54:00:00:00:01", name="boot"),),
        )
        await fleet.edits.create_nodes([first, Node(name="n2", uid=0, role="login")], "ann")
        await fleet.settled(await fleet.store.revision())
        await fleet.edits.put_group("all", np.array([0, 1]), "ann", description="yes: all")
        wanted = DesireDocument(name="off", select="@all", set={"power": ("off",)}, priority=3)
        await fleet.settled(await fleet.edits.put_document(wanted, "ann"))
        url, site = f"unix:{fleet.settings.admin_socket}", str(tmp_path / "imported")
        for _ in range(2):
            code = await asyncio.to_thread(main.run, ["--url", url, "config", "import", site])
        assert code == 3, "nothing is written over"
        found = read_repository(tmp_path / "imported").configuration()
        assert [entry.name for entry in found.nodes] == ["n1", "n2"]
        done = await apply(fleet, found)
        assert (done.changes, done.unchanged) == ((), 4), capfd.readouterr()


# ---- a branch that is followed ----


def watched(site: SiteRepository, policy: str = "manual", **more: str) -> WatchSpec:
    return WatchSpec(url=str(site.directory), policy=policy, every=86_400, **more)  # type: ignore[arg-type]


async def look(fleet: Fleet) -> ConfigStatus:
    return await fleet.of(ConfigService).look(LOCAL_ADMIN)


async def test_by_hand_a_commit_waits_until_it_is_approved(fleet: Fleet, site: SiteRepository) -> None:
    config = fleet.of(ConfigService)
    await config.watch(LOCAL_ADMIN, watched(site))
    found = await look(fleet)
    head = site.git("rev-parse", "HEAD")
    assert (found.pending, found.waits_for, found.commit) == (head, "approval", "")
    assert said(await config.pending(LOCAL_ADMIN)) == FIRST
    with pytest.raises(Conflict, match="the commit that waits is"):
        await config.approve(LOCAL_ADMIN, Approval(commit="0" * 12))
    assert len(fleet.registry) == 0
    done = await config.approve(LOCAL_ADMIN, Approval(commit=head[:12]))
    assert (done.commit, done.pending, done.nodes, done.error) == (head, "", 4, "")
    (entry,) = [entry for entry in await fleet.ledger.latest(20) if entry.action == "config-watch.approve"]
    assert (entry.author, entry.detail["commit"]) == (LOCAL_ADMIN.name, head), "who let which commit be applied"
    with pytest.raises(NotFound, match="no commit waits"):
        await config.pending(LOCAL_ADMIN)
    site.commit({"site/more.yaml": "kind: node\nname: n5\n"})
    assert (await look(fleet)).waits_for == "approval", "an approval is for one commit"


async def test_a_bad_commit_changes_nothing_and_the_next_good_one_is_applied(
    fleet: Fleet, site: SiteRepository
) -> None:
    config = fleet.of(ConfigService)
    await config.watch(LOCAL_ADMIN, watched(site, "auto"))
    good = (await look(fleet)).commit
    assert good == site.git("rev-parse", "HEAD")
    bad = site.commit({"site/more.yaml": "kind: node\nname: n5\ncolour: red\n"})
    found = await look(fleet)
    assert (found.commit, found.seen, found.pending) == (good, bad, "")
    assert "site/more.yaml, line 3, column 1" in found.error
    worse = site.commit({"site/more.yaml": "kind: desire\nname: d\nselect: n1\nset: {powr: on}\n"})
    found = await look(fleet)
    assert (found.commit, found.seen) == (good, worse)
    assert "powr" in found.error
    assert len(fleet.registry) == 4
    mended = site.commit({"site/more.yaml": "kind: node\nname: n5\n"})
    found = await look(fleet)
    assert (found.commit, found.error) == (mended, "")
    assert fleet.registry.find("n5") >= 0


async def test_a_force_push_waits_for_a_person_whatever_the_policy(fleet: Fleet, site: SiteRepository) -> None:
    config = fleet.of(ConfigService)
    first = site.git("rev-parse", "HEAD")
    site.commit({"site/more.yaml": "kind: node\nname: n5\n"})
    await config.watch(LOCAL_ADMIN, watched(site, "auto"))
    second = (await look(fleet)).commit
    site.git("reset", "--quiet", "--hard", first)
    third = site.commit({"site/more.yaml": "kind: node\nname: n6\n"})
    found = await look(fleet)
    assert (found.commit, found.pending) == (second, third)
    assert found.waits_for == f"approval: the branch was put elsewhere, {third[:12]} does not come after {second[:12]}"
    assert fleet.registry.find("n5") >= 0
    await config.approve(LOCAL_ADMIN, Approval(commit=third))
    assert (fleet.registry.find("n5"), (await status(fleet)).commit) == (-1, third)


async def test_a_commit_that_removes_much_waits_for_a_person(fleet: Fleet, site: SiteRepository) -> None:
    config = fleet.of(ConfigService)
    await config.watch(LOCAL_ADMIN, watched(site, "auto"))
    await look(fleet)
    site.commit({"site/nodes.yaml": "kind: nodes\nnodes: n1\n", "site/groups.yaml": GROUPS.replace("n[1-4]", "n1")})
    found = await look(fleet)
    assert found.waits_for == (
        "approval with --remove-most: it would forget 3 of the 4 nodes that came from the configuration"
    )
    await config.approve(LOCAL_ADMIN, Approval(commit=found.pending))
    assert len(fleet.registry) == 4, "that approval was not for removing much"
    await config.approve(LOCAL_ADMIN, Approval(commit=found.pending, remove_most=True))
    assert len(fleet.registry) == 1


async def test_a_branch_that_is_paused_is_looked_at_and_not_applied(fleet: Fleet, site: SiteRepository) -> None:
    config = fleet.of(ConfigService)
    await config.watch(LOCAL_ADMIN, watched(site))
    await config.pause(LOCAL_ADMIN, Pause(reason="acceptance run"))
    found = await look(fleet)
    assert found.waits_for == "paused: acceptance run"
    await config.approve(LOCAL_ADMIN, Approval(commit=found.pending))
    assert len(fleet.registry) == 0
    await config.pause(LOCAL_ADMIN, Pause())
    assert (await look(fleet)).commit == found.pending, "the approval still counts"


async def test_in_a_window_a_commit_is_applied_by_itself_and_outside_it_waits(
    fleet: Fleet, site: SiteRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = fleet.of(ConfigService)
    now = dt.datetime(2026, 3, 3, 7, 59)  # a Tuesday
    clock = Clock(now=fleet.controller.clock.now, wall=lambda: now.timestamp())
    monkeypatch.setattr(fleet.controller, "clock", clock)
    await config.watch(LOCAL_ADMIN, watched(site, "window", window="Tue 08:00-12:00"))
    found = await look(fleet)
    assert (found.waits_for, found.commit) == ("the maintenance window (Tue 08:00-12:00)", "")
    now += dt.timedelta(minutes=1)
    assert (await look(fleet)).commit == site.git("rev-parse", "HEAD")


@pytest.mark.server
async def test_a_branch_is_followed_by_itself_and_after_a_restart(tmp_path: Path, site: SiteRepository) -> None:
    async with service(tmp_path) as fleet:
        spec = WatchSpec(url=str(site.directory), policy="auto", every=5)
        await fleet.of(ConfigService).watch(LOCAL_ADMIN, spec)
        await _until_applied(fleet, site.git("rev-parse", "HEAD"))
    newest = site.commit({"site/more.yaml": "kind: node\nname: n5\n"})
    async with service(tmp_path) as fleet:
        await _until_applied(fleet, newest)
        assert fleet.registry.find("n5") >= 0
        await fleet.of(ConfigService).unwatch(LOCAL_ADMIN)
        assert (await status(fleet)).watch is None
        assert len(fleet.registry) == 5


async def _until_applied(fleet: Fleet, commit: str) -> None:
    await until(lambda: fleet.of(ConfigService).applied.commit == commit)


async def test_a_selection_of_nobody_is_warned_of_before_it_is_applied(fleet: Fleet, site: SiteRepository) -> None:
    site.commit({"site/more.yaml": 'kind: desire\nname: d\nselect: "@computee"\nset: {power: off}\n'})
    assert (await plan(fleet, at_head(site))).warnings == (
        "desire d (site/more.yaml, line 2, column 7) is about no node: no such group: computee",
    )
    site.commit({"site/more.yaml": "kind: desire\nname: d\nselect: label:rack=r9\nset: {power: off}\n"})
    assert (await plan(fleet, at_head(site))).warnings == (
        "desire d (site/more.yaml, line 2, column 7) is about no node: label:rack=r9",
    )
    site.commit({"site/more.yaml": "kind: desire\nname: d\nselect: n4\nset: {power: off}\n"})
    assert (await plan(fleet, at_head(site))).warnings == ()


async def test_what_was_wrong_with_one_branch_is_not_said_of_another(fleet: Fleet, site: SiteRepository) -> None:
    config = fleet.of(ConfigService)
    await config.watch(LOCAL_ADMIN, msgspec.structs.replace(watched(site, "auto"), branch="nosuch"))
    assert "couldn't find remote ref" in (await look(fleet)).error
    found = await config.watch(LOCAL_ADMIN, watched(site, "manual"))
    assert (found.error, found.seen) == ("", "")
    await config.unwatch(LOCAL_ADMIN)
    with pytest.raises(NotFound, match="no branch is followed"):
        await config.unwatch(LOCAL_ADMIN)


async def test_a_repository_that_is_away_is_said_and_nothing_changes(
    fleet: Fleet, site: SiteRepository, tmp_path: Path
) -> None:
    config = fleet.of(ConfigService)
    await config.watch(LOCAL_ADMIN, watched(site, "auto"))
    good = (await look(fleet)).commit
    site.directory.rename(tmp_path / "moved")
    found = await look(fleet)
    assert "cannot be fetched" in found.error
    assert (found.commit, len(fleet.registry)) == (good, 4)


@pytest.mark.parametrize("text", ["", "Tue", "08:00", "Tues 08:00-09:00", "8:00-9:00", "08:61-09:00", "08:00-08:00"])
def test_what_is_no_window_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest, match="Tue,Thu 08:00-12:00"):
        parse_window(text)


def test_a_window_may_cross_midnight_and_the_week() -> None:
    night = parse_window("Sat-Sun 22:00-04:00")
    sunday = dt.datetime(2026, 3, 1)
    assert night.is_open(sunday.replace(hour=23)) and night.is_open(sunday.replace(hour=3))
    assert night.is_open(sunday.replace(day=2, hour=3)), "that of Sunday, on Monday"
    assert not night.is_open(sunday.replace(hour=12)) and not night.is_open(sunday.replace(day=2, hour=23))
