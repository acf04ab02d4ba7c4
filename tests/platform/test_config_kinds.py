"""What rooms of their own keep (flows, checks, profiles, policies, budgets) in a repository: read, planned, applied,
taken back, and written from a running service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_config_service import apply, at_head, plan, said

from strata.cli import main
from strata.core.errors import BadRequest, Refused
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.budgets.records import BudgetSpec
from strata.fleet.budgets.service import BudgetService
from strata.fleet.fleet import Fleet
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.platform.config.documents import KINDS, schema
from strata.platform.config.explain import explain
from strata.platform.config.kept import KEPT
from strata.platform.config.reading import read_repository
from strata.platform.config.records import FIELDS, Configuration
from strata.platform.config.service import ConfigService
from strata.platform.delivery.records import revision_of
from strata.platform.flows.records import FlowSpec, FlowStep
from strata.platform.flows.service import FlowService
from strata.platform.flows.system import SystemFlows
from strata.platform.health.service import HealthService
from strata.platform.secrets.age import encrypt
from strata.platform.secrets.service import SecretService
from strata.platform.sources import service as source_service
from strata.platform.sources.service import SourceService
from strata.power.policies.records import PolicyRecords, PolicySpec
from strata.power.policies.service import PolicyService
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.images.repository import Images
from support.platform_fleet import until
from support.site_repository import SiteRepository, small_site

POLICY = "name: night\nlimit: 100kW  # by contract\n"
FILES = {
    "site/kinds.yaml": """kind: flow
name: evening
steps:
  - {name: "off", nodes: "@compute", set: {power: off}, timeout: 10m}
---
kind: system
stages:
  - {name: compute, nodes: "@compute", timeout: 30m}
---
kind: health-check
name: scratch
check: filesystem
select: "@compute"
path: /scratch
every: 2m
---
kind: health-policy
repairs: [reboot]
---
kind: boot-profile
name: debug
parameters: loglevel=7
---
kind: power-policy
name: night
source: power/night.yaml
enabled: true
without_simulation: the vendor did
---
kind: rollout-policy
soak: 10m
---
kind: playbook
name: base
select: "@compute"
url: /nowhere
path: base.yaml
commit: 4f0c1d2e3a4b5c6d7e8f90123456789abcdef012
vars: {greeting: hello}
---
kind: budget
name: disruption
percent: 5
---
kind: network
name: boot
network: 10.77.0.0/24
lease: 1800
trust_ports: true
""",
    "site/files/power/night.yaml": POLICY,
}
MADE = {
    ("flow", "evening"),
    ("system", "stages"),
    ("health-check", "scratch"),
    ("health-policy", "policy"),
    ("boot-profile", "debug"),
    ("power-policy", "night"),
    ("rollout-policy", "commits"),
    ("playbook", "base"),
    ("budget", "disruption"),
    ("network", "boot"),
}


@pytest.fixture
def site(tmp_path: Path) -> SiteRepository:
    return small_site(tmp_path / "site")


def whole(directory: Path, port: int = 0) -> Settings:
    return Settings(
        state_dir=directory / "state",
        controller_id="c1",
        layers=("hardware", "provisioning", "power", "platform"),
        listen=ListenSettings(tls=False, port=port),
        hardware=HardwareSettings(poll=False, consoles=False),
    )


def held(fleet: Fleet) -> set[tuple[str, str]]:
    keepers = fleet.of(ConfigService).keepers
    return {(kind, name) for kind, keeper in keepers.items() for name in keeper.records.all}


async def imported(fleet: Fleet, folder: Path, system: str = "main") -> Configuration:
    """What 'strata config import' writes of a service."""
    words = ["--url", f"unix:{fleet.settings.admin_socket}", "config", "import", str(folder), "--system", system]
    assert await asyncio.to_thread(main.run, words) == 0
    return read_repository(folder).configuration()


def disruption(fleet: Fleet) -> float | None:
    budgets = fleet.controller.engine.admission.budgets
    return budgets._meters["disruption"].budget.percent


def test_every_kind_has_a_schema_and_a_field_of_the_configuration() -> None:
    assert KEPT.keys() == FIELDS.keys() <= KINDS.keys()
    kinds = {
        part["properties"]["kind"]["enum"][0] for part in schema()["$defs"].values() if "kind" in part["properties"]
    }
    assert KINDS.keys() <= kinds


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("kind: flow\nname: f\nsteps:\n  - {name: a, set: {power: off}, timeout: soon}\n", "line 4, column 43", "soon"),
        ("kind: flow\nname: f\nsteps:\n  - {name: a}\n", "line 4, column 5", "one thing"),
        ("kind: flow\nname: f\n", "line 2, column 7", "must have steps"),
        ("kind: health-check\nname: h\ncheck: disc\n", "line 3, column 8", "disc"),
        ("kind: health-check\nname: h\ncheck: time\nevery: 1s\n", "line 4, column 8", "at least"),
        ("kind: health-check\nname: h\ncheck: time\nselect: state:ready\n", "line 1, column 1", "cannot select by"),
        ("kind: health-policy\nrepairs: [kick]\n", "line 2, column 11", "kick"),
        ("kind: boot-profile\nname: p\nparameters: password=x\n", "line 2, column 7", "secret"),
        ("kind: power-policy\nname: p\nsource: no.yaml\n", "line 3, column 9", "no files/no.yaml"),
        ("kind: power-policy\nname: p\ntext: 'limit: much'\n", "line 2, column 7", "much"),
        ("kind: budget\nname: disruption\npercent: 120\n", "line 3, column 10", "at most 100"),
        ("kind: network\nname: boot\nnetwork: 10.77.0.1/24\n", "line 2, column 7", "its host bits are set"),
        ("kind: network\nname: boot\ngateway: 10.77.0.1\n", "line 2, column 7", "which network it is"),
        ("kind: budget\nname: disruption\nmost: 1\n", "line 3, column 1", "unknown"),
        ("kind: system\nstages: []\n", "line 2, column 9", "empty"),
    ],
)
def test_what_is_wrong_with_a_document_is_said_with_line_and_column(
    site: SiteRepository, text: str, place: str, words: str
) -> None:
    site.write({"site/new.yaml": text})
    with pytest.raises(BadRequest) as error:
        read_repository(site.directory).configuration()
    assert f"site/new.yaml, {place}" in str(error.value)
    assert words in str(error.value)


def test_a_later_layer_says_otherwise_and_two_running_policies_are_an_error(site: SiteRepository) -> None:
    other = "kind: health-check\nname: scratch\nevery: 5m\n---\nkind: budget\nname: disruption\nabsent: true\n"
    site.write({**FILES, "systems/prod/more.yaml": other})
    found = read_repository(site.directory).configuration()
    (check,) = found.health_checks
    assert (check.kind, check.path, check.every) == ("filesystem", "/scratch", 300.0)
    assert found.budgets == ()
    assert found.power_policies[0].text == POLICY, "as it stands in the file: its digest is what was simulated"
    second = "kind: power-policy\nname: zday\ntext: 'limit: 1MW'\nenabled: true\n"
    site.write({"systems/prod/more.yaml": second})
    with pytest.raises(
        BadRequest, match=r"systems/prod/more.yaml, line 2, column 7: power policy night is enabled too"
    ):
        read_repository(site.directory).configuration()


def test_explain_says_which_checks_are_for_a_node(site: SiteRepository) -> None:
    site.write(FILES)
    found = [origin for origin in explain(read_repository(site.directory), "n1") if origin.field == "health-check"]
    assert [(origin.value, origin.layer) for origin in found] == [("scratch", "site")]


@pytest.mark.slow
@pytest.mark.server
async def test_all_kinds_are_planned_applied_imported_and_taken_back(tmp_path: Path, site: SiteRepository) -> None:
    async with running(whole(tmp_path)) as fleet:
        await apply(fleet, at_head(site))
        by_hand = FlowSpec(steps=(FlowStep(name="a", set={"power": "on"}),))
        await fleet.of(FlowService).put(LOCAL_ADMIN, "mine", by_hand)
        before = held(fleet)
        site.commit(FILES)
        planned = await plan(fleet, at_head(site))
        assert {(kind, name) for kind, name, _ in said(planned)} == MADE
        assert {change.place.partition(",")[0] for change in planned.changes} == {"site/kinds.yaml"}
        assert held(fleet) == before, "a plan changes nothing"
        done = await apply(fleet, at_head(site))
        assert said(done) == said(planned)
        assert held(fleet) == before | MADE
        assert fleet.of(Profiles).get("debug").parameters == "loglevel=7"
        assert fleet.of(PolicyRecords).enabled is not None
        assert (await fleet.of(SystemFlows).show(LOCAL_ADMIN)).stages[0].timeout == 1800
        assert fleet.of(HealthService).policy.repairs == ("reboot",)
        assert disruption(fleet) == 5
        assert (await apply(fleet, at_head(site))).changes == ()

        folder = tmp_path / "imported"
        socket = ["--url", f"unix:{fleet.settings.admin_socket}"]
        assert await asyncio.to_thread(main.run, [*socket, "config", "import", str(folder), "--system", "prod"]) == 0
        text = (folder / "systems/prod/files/power-policy/night.yaml").read_text(encoding="utf-8")
        assert text == POLICY
        imported = await plan(fleet, read_repository(folder).configuration())
        # Without boot networks nobody answers for boot profiles.
        assert [one for one in said(imported) if one[0] in KEPT] == [("boot-profile", "debug", "removed")]

        site.git("revert", "--no-edit", "HEAD")
        gone = await apply(fleet, at_head(site), remove_most=True)
        assert {(kind, name, action) for kind, name, action in said(gone)} == {(*one, "removed") for one in MADE}
        assert held(fleet) == before, "what somebody put by hand stays"
        assert disruption(fleet) == 10


@pytest.mark.slow
@pytest.mark.server
async def test_overlays_and_secrets_of_a_running_service_are_imported_with_their_files_and_change_nothing(
    tmp_path: Path, site: SiteRepository
) -> None:
    async with running(whole(tmp_path)) as fleet:
        recipient = (await fleet.of(SecretService).init(LOCAL_ADMIN, new=False)).recipient
        armoured = "".join(f"  {line}\n" for line in encrypt(b"canary", [recipient]).splitlines())
        site.commit(
            {
                "vendor/time.yaml": "kind: overlay\nname: time\nvars: {servers: [a, b]}\ndrift: correct\n"
                "files:\n  - {path: /etc/chrony.conf, source: chrony.conf.j2, mode: '0600'}\n"
                "  - {path: /etc/empty, content: ''}\n"
                "packages: [{name: chrony, version: '4.3'}]\n"
                "services: [{name: chrony.service, running: true}]\n",
                "vendor/files/chrony.conf.j2": "server {{ vars.servers[0] }}  # {{ node.name }}\n",
                "site/time.yaml": 'kind: overlay\nname: time\nselect: "@compute"\nfiles:\n'
                "  - {path: /etc/motd, source: motd}\n  - {path: /etc/chrony.conf, absent: true}\n",
                "site/files/motd": "Jobs: run here.\n\n",
                "site/munge.yaml": f"kind: secret\nname: munge\nselect: '@compute'\nuid: 7\nage: |\n{armoured}",
                "site/want.yaml": "kind: desire\nname: configured\nselect: n4\nset: {config: current}\n",
            }
        )
        await apply(fleet, at_head(site))
        folder = tmp_path / "imported"
        found = await imported(fleet, folder)
        assert said(await plan(fleet, found)) == []
        assert revision_of(found.overlays) == fleet.of(ConfigService).applied.overlays
        assert "config: current" in (folder / "systems/main/desires.yaml").read_text(encoding="utf-8")
        assert not [file for file in folder.rglob("*.yaml") if "canary" in file.read_text(encoding="utf-8")]
        (folder / "vendor/files/chrony.conf.j2").write_text("server c\n", encoding="utf-8")
        changed = await plan(fleet, read_repository(folder).configuration())
        assert ("overlay", "time", "changed") in said(changed), "it goes on from what was written"


@pytest.mark.slow
@pytest.mark.server
async def test_the_gates_of_a_room_hold_for_the_repository_too(tmp_path: Path, site: SiteRepository) -> None:
    async with running(whole(tmp_path)) as fleet:
        policy = "kind: power-policy\nname: night\nsource: power/night.yaml\n"
        site.commit({"site/power.yaml": policy, "site/files/power/night.yaml": POLICY})
        with pytest.raises(Refused, match="has not been simulated"):
            await plan(fleet, at_head(site))
        running_one = PolicySpec(text="limit: 1MW\n", without_simulation="old")
        await fleet.of(PolicyService).put(LOCAL_ADMIN, "old", running_one)
        await fleet.of(PolicyService).enable(LOCAL_ADMIN, "old")
        site.commit({"site/power.yaml": policy + "enabled: true\nwithout_simulation: new\n"})
        with pytest.raises(Refused, match="old runs"):
            await apply(fleet, at_head(site))
        profile = "kind: boot-profile\nname: debug\n---\nkind: desire\nname: d\nselect: n1\nset: {minos: debug}\n"
        site.commit({"site/power.yaml": profile})
        await apply(fleet, at_head(site))
        site.commit({"site/power.yaml": profile[profile.index("---") :]})
        with pytest.raises(Refused, match="still wanted to have it: n1"):
            await apply(fleet, at_head(site))
        site.commit({"site/power.yaml": "kind: budget\nname: bmc-rate\npercent: 5\n"})
        with pytest.raises(BadRequest, match=r"site/power.yaml, line 2.*this budget has no percent"):
            await plan(fleet, at_head(site))
        budgets = fleet.of(BudgetService)
        await budgets.put(LOCAL_ADMIN, "disruption", BudgetSpec(percent=3))
        assert [(one.percent, one.author) for one in await budgets.all(LOCAL_ADMIN) if one.percent] == [
            (3, LOCAL_ADMIN.name)
        ]
        assert disruption(fleet) == 3
        await budgets.delete(LOCAL_ADMIN, "disruption")
        assert disruption(fleet) == 10


RECIPE = """from: scratch
files:
  - {path: /etc/motd, content: hello}
  - {path: /serve, source: serve.sh, mode: "0755"}
argv: [/serve]
"""
IMAGE = "kind: image\nname: tiny-1\nimage: tiny:1\nrecipe: images/tiny\n"
PERSONALITY = "---\nkind: personality\nname: web\nmembers: [{name: system, release: 'tiny:1'}]\n"


@pytest.mark.slow
@pytest.mark.server
async def test_an_image_is_made_of_what_the_repository_says_before_a_personality_has_it(
    tmp_path: Path, site: SiteRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_service, "EVERY", 0.2)
    files = {"site/files/images/tiny/recipe.yaml": RECIPE, "site/files/images/tiny/serve.sh": "#!/bin/sh\n"}
    async with running(whole(tmp_path)) as fleet:
        site.commit({**files, "site/images.yaml": IMAGE + PERSONALITY})
        planned = await plan(fleet, at_head(site))
        assert {("image", "tiny-1", "created"), ("personality", "web", "created")} <= set(said(planned))
        with pytest.raises(Refused, match="tiny:1 is being made"):
            await apply(fleet, at_head(site))
        assert fleet.of(ConfigService).applied.commit == "", "all the rest waits"
        sources = fleet.of(SourceService)
        await until(lambda: sources._view(sources.records.get("tiny-1")).state in ("made", "failed"))
        assert sources._view(sources.records.get("tiny-1")).state == "made", await sources.all(LOCAL_ADMIN)
        done = await apply(fleet, at_head(site))
        assert ("personality", "web", "created") in said(done)
        assert (await apply(fleet, at_head(site))).changes == ()
        assert said(await plan(fleet, await imported(fleet, tmp_path / "imported"))) == [], "with its recipe"

        site.commit({"site/files/images/tiny/serve.sh": "#!/bin/true\n"})
        with pytest.raises(Refused, match=r"tiny:1 was made from something else already.*tag of its own"):
            await plan(fleet, at_head(site))
        gone = "kind: image\nname: tiny-2\nimage: tiny:2\nregistry: 127.0.0.1:1/nothing:here\n"
        site.commit({"site/images.yaml": gone + PERSONALITY})
        await apply(fleet, at_head(site))
        await until(lambda: sources._view(sources.records.get("tiny-2")).state == "failed")
        assert "tiny-1" not in sources.records.all
        assert "tiny" in fleet.of(Images).catalogue.names, "an image that nodes may run does not go with its recipe"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image: tiny\nrecipe: images/tiny\n", "names a tag"),
        ("image: tiny:1\n", "either from a registry or from a recipe"),
        ("image: tiny:1\nrecipe: images/none\n", "4, column 9: there is no folder"),
        ("image: tiny:1\nrecipe: images/bad\n", "neither recipe.yaml nor Containerfile"),
    ],
)
def test_what_no_image_can_be_made_of_is_said_with_its_place(site: SiteRepository, text: str, words: str) -> None:
    site.write({"site/files/images/bad/serve.sh": "#!/bin/sh\n", "site/files/images/tiny/recipe.yaml": RECIPE})
    site.write({"site/i.yaml": f"kind: image\nname: t\n{text}"})
    with pytest.raises(BadRequest, match=rf"site/i.yaml, line.*{words}"):
        read_repository(site.directory).configuration()
