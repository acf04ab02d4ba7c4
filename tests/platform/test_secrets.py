"""Secrets in the service: encrypted before they come, opened for the node that asks, and who has which version."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, NotFound, Refused, Unavailable
from strata.core.node import Node
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.sealing import Seal
from strata.fleet.alarm import Alarm
from strata.fleet.groups.records import GroupSpec, MemberChange
from strata.fleet.groups.service import GroupService
from strata.fleet.peers.leaders import LeaderClient
from strata.platform.config.explain import explain
from strata.platform.config.reading import read_repository
from strata.platform.config.service import ConfigService
from strata.platform.secrets import vault as vaults
from strata.platform.secrets.age import encrypt
from strata.platform.secrets.delivery import ROUTE
from strata.platform.secrets.identities import Identities
from strata.platform.secrets.records import NewValue, SecretSpec, VaultPlace
from strata.platform.secrets.service import SecretService
from strata.platform.secrets.vault import Vault
from strata.platform.settings import PlatformSettings
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Exchange
from support.fake_vault import Behaviour, FakeVault, fake_vault
from support.platform_fleet import platform_fleet, until
from support.rooms import OpenFleet
from support.site_repository import SiteRepository

KEY = bytes(range(32))


class Elsewhere:
    """Other controllers: what each was told by its agents, or why it is away."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, str] | Unavailable] = {}
        self.peers = SimpleNamespace(others=lambda: list(self.told))

    async def ask(self, peer: str, route: str, question: str, kind: object) -> dict[str, str]:
        assert (route, question) == (ROUTE, "munge")
        answer = self.told[peer]
        if isinstance(answer, Unavailable):
            raise answer
        return answer


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
async def fleet(tmp_path: Path, elsewhere: Elsewhere) -> AsyncIterator[OpenFleet]:
    hub = Hub()
    door = AgentDoor(hub=hub, identity=None, unknown=None, inventoried=None, logged=None)  # type: ignore[arg-type]
    nodes = [Node(name=f"n{number}", uid=number) for number in (1, 2, 3)]
    put, fakes = (Seal([KEY]), hub, door), {LeaderClient: elsewhere}
    async with platform_fleet(tmp_path, nodes, SecretService, put=put, fakes=fakes) as found:
        await found.of(GroupService).put_group(LOCAL_ADMIN, "gpu", GroupSpec(members="n[1-2]"), None)
        await found.of(SecretService).init(LOCAL_ADMIN, new=False)
        yield found


async def encrypted(fleet: OpenFleet, value: bytes) -> str:
    return encrypt(value, [(await fleet.of(SecretService).recipient(LOCAL_ADMIN)).recipient])


async def put(fleet: OpenFleet, name: str, value: bytes, select: str = "@gpu", **more: Any) -> None:
    spec = SecretSpec(select=select, age=await encrypted(fleet, value), **more)
    await fleet.of(SecretService).put(LOCAL_ADMIN, name, spec)


async def asked(fleet: OpenFleet, node: str, have: dict[str, str] | None = None) -> dict[str, Any]:
    """What the agent of a node is answered."""
    answer = await fleet.of(AgentDoor).more[ROUTE](node, json.dumps({"have": have or {}}).encode())
    found: dict[str, Any] = json.loads(answer)
    return found


def values(answer: dict[str, Any]) -> dict[str, bytes]:
    return {name: base64.b64decode(one["value"]) for name, one in answer["secrets"].items()}


async def report(fleet: OpenFleet, node: str, held: dict[str, str], seq: int = 1) -> list[str]:
    """An agent says what it holds; the kinds of commands that it gets."""
    state = msgspec.Raw(json.dumps({"secrets": held, "agent": {"started": 1.0}}).encode())
    said = Exchange(generation=1, boot_id=f"boot of {node}", seq=seq, wait=0, state=state)
    return [command["kind"] for command in (await fleet.of(Hub).exchange(node, said)).commands]


# whom they are given


async def test_a_node_gets_what_is_for_it_and_nothing_else(fleet: OpenFleet) -> None:
    await put(fleet, "munge", b"of all gpus\n", uid=64030)
    await put(fleet, "host-key", b"of n3", select="n3")
    assert values(await asked(fleet, "n1")) == {"munge": b"of all gpus\n"}
    assert values(await asked(fleet, "n3")) == {"host-key": b"of n3"}
    given = (await asked(fleet, "n1"))["secrets"]["munge"]
    assert given["uid"] == 64030
    again = await asked(fleet, "n1", {"munge": given["stamp"]})
    assert (again["secrets"], again["keep"]) == ({}, ["munge"]), "what it has is not sent again"
    with pytest.raises(Unavailable):
        await asked(fleet, "n99")


async def test_a_node_that_leaves_a_group_is_not_given_its_secrets_any_more(fleet: OpenFleet) -> None:
    await put(fleet, "munge", b"x")
    held = {"munge": (await asked(fleet, "n1"))["secrets"]["munge"]["stamp"]}
    await fleet.of(GroupService).change_members(LOCAL_ADMIN, "gpu", MemberChange(remove="n1"))
    left = await asked(fleet, "n1", held)
    assert (left["secrets"], left["keep"]) == ({}, []), "in neither: it goes"


async def test_what_was_encrypted_for_somebody_else_is_refused_and_nothing_is_kept(fleet: OpenFleet) -> None:
    strange = encrypt(b"x", ["age1ekt4t7kv6m928dcqmu28nulqk6qp2wjmaser3jax9uhmrkce5ghst37scs"])
    with pytest.raises(BadRequest, match="somebody else"):
        await fleet.of(SecretService).put(LOCAL_ADMIN, "munge", SecretSpec(select="@gpu", age=strange))
    with pytest.raises(BadRequest, match="cannot select by state"):
        await put(fleet, "munge", b"x", select="state:ready")
    with pytest.raises(NotFound):
        await fleet.of(SecretService).one(LOCAL_ADMIN, "munge")


async def test_older_identities_still_open_and_a_second_is_made_only_when_asked_for(fleet: OpenFleet) -> None:
    service = fleet.of(SecretService)
    await put(fleet, "munge", b"before")
    with pytest.raises(Refused):
        await service.init(LOCAL_ADMIN, new=False)
    before = await service.recipient(LOCAL_ADMIN)
    after = await service.init(LOCAL_ADMIN, new=True)
    assert after.older == (before.recipient,)
    await put(fleet, "other", b"after")
    assert values(await asked(fleet, "n1")) == {"munge": b"before", "other": b"after"}


async def test_the_identity_comes_under_a_new_sealing_key_and_opens_with_no_other(fleet: OpenFleet) -> None:
    await put(fleet, "munge", b"x")
    fleet.services.put(Seal([b"n" * 32, KEY]))
    renewed = Identities(fleet)
    await renewed.start()
    await renewed.stop()
    fleet.services.put(Seal([b"n" * 32]))
    alone = Identities(fleet)
    await alone.start()
    assert len(alone.private()) == 1
    await alone.stop()


# who has them


async def test_rotation_tells_nodes_to_ask_and_tracks_who_has_the_new_value(fleet: OpenFleet) -> None:
    service = fleet.of(SecretService)
    await put(fleet, "munge", b"one")
    stamp = (await asked(fleet, "n1"))["secrets"]["munge"]["stamp"]
    await report(fleet, "n1", {"munge": stamp})
    await report(fleet, "n3", {"munge": stamp})
    status = await service.status(LOCAL_ADMIN, "munge")
    assert (status.current, status.away, status.leftover) == ("n1", "n2", "n3")

    view = await service.rotate(LOCAL_ADMIN, "munge", NewValue(age=await encrypted(fleet, b"two")))
    assert (view.version, view.select) == (2, "@gpu")
    status = await service.status(LOCAL_ADMIN, "munge")
    assert (status.older, status.current) == ("n1", "")
    told = fleet.of(Hub).get("n1")
    assert told is not None
    await until(lambda: any(command.kind == ROUTE for command in told.outbox.values()))
    assert await report(fleet, "n1", {"munge": stamp}, seq=2) == [ROUTE]
    assert (await asked(fleet, "n1"))["secrets"]["munge"]["value"] == base64.b64encode(b"two").decode()
    await report(fleet, "n1", {"munge": (await asked(fleet, "n1"))["secrets"]["munge"]["stamp"]}, seq=3)
    assert (await service.status(LOCAL_ADMIN, "munge")).current == "n1"

    await service.delete(LOCAL_ADMIN, "munge")
    await put(fleet, "munge", b"three")
    status = await service.status(LOCAL_ADMIN, "munge")
    assert (status.version, status.older) == (1, "n1"), "one of the same name is another secret"


async def test_nodes_of_other_controllers_count_and_those_of_one_that_is_away_are_away(
    fleet: OpenFleet, elsewhere: Elsewhere
) -> None:
    await put(fleet, "munge", b"one", select="n[1-3]")
    stamp = (await asked(fleet, "n1"))["secrets"]["munge"]["stamp"]
    await report(fleet, "n1", {"munge": stamp})
    elsewhere.told = {"c2": {"n2": stamp}, "c3": Unavailable("is away")}
    status = await fleet.of(SecretService).status(LOCAL_ADMIN, "munge")
    assert (status.current, status.away) == ("n[1-2]", "n3")
    await fleet.of(SecretService).delete(LOCAL_ADMIN, "munge")


async def test_what_is_kept_written_and_shown_holds_no_value(fleet: OpenFleet) -> None:
    await put(fleet, "munge", b"CANARY-in-the-service")
    assert values(await asked(fleet, "n1"))
    service = fleet.of(SecretService)
    shown = [repr(await service.all(LOCAL_ADMIN)), repr(vars(service)), repr(vars(service._values))]
    entries = (await fleet.store.range("")).entries
    assert any(entry.key.startswith("secret/") for entry in entries)
    for text in (*shown, *(repr(entry.value) for entry in entries)):
        assert "CANARY" not in text and "AGE-SECRET" not in text


# from the repository


async def test_secrets_of_the_repository_come_and_go_with_commits_and_are_changed_there_alone(
    fleet: OpenFleet, tmp_path: Path
) -> None:
    service, config = fleet.of(SecretService), fleet.of(ConfigService)
    site = SiteRepository(tmp_path / "site")
    text = "kind: secret\nname: munge\nselect: '@gpu'\nage: |\n"
    first = text + "".join(f"  {line}\n" for line in (await encrypted(fleet, b"from git")).splitlines())
    site.commit({"site/secrets/munge.yaml": first})
    done = await config.apply(LOCAL_ADMIN, read_repository(site.directory, "HEAD").configuration())
    assert [(change.kind, change.name, change.action) for change in done.changes] == [("secret", "munge", "created")]
    assert values(await asked(fleet, "n1")) == {"munge": b"from git"}
    site.write({"site/nodes.yaml": "kind: nodes\nnodes: n[1-3]\n---\nkind: group\nname: gpu\nmembers: n[1-2]\n"})
    told = {name: explain(read_repository(site.directory), name) for name in ("n1", "n3")}
    assert [(one.layer, one.place) for one in told["n1"] if (one.field, one.value) == ("secret", "munge")] == [
        ("site", "site/secrets/munge.yaml, line 2, column 7")
    ]
    assert not any(one.field == "secret" for one in told["n3"])
    (site.directory / "site/nodes.yaml").unlink()
    with pytest.raises(Refused, match="repository"):
        await put(fleet, "munge", b"by hand")
    with pytest.raises(Refused, match="repository"):
        await service.delete(LOCAL_ADMIN, "munge")

    site.commit({"site/secrets/munge.yaml": first.replace("@gpu", "n3")})
    await config.apply(LOCAL_ADMIN, read_repository(site.directory, "HEAD").configuration())
    view = await service.one(LOCAL_ADMIN, "munge")
    assert (view.version, view.select) == (1, "n3"), "the value is the same"
    assert values(await asked(fleet, "n1")) == {}

    strange = encrypt(b"x", ["age1ekt4t7kv6m928dcqmu28nulqk6qp2wjmaser3jax9uhmrkce5ghst37scs"])
    site.commit({"site/secrets/munge.yaml": text + "".join(f"  {line}\n" for line in strange.splitlines())})
    with pytest.raises(BadRequest, match=r"munge\.yaml, line 2.*somebody else"):
        await config.apply(LOCAL_ADMIN, read_repository(site.directory, "HEAD").configuration())
    assert values(await asked(fleet, "n3")) == {"munge": b"from git"}, "the last good one stays"


# of a Vault


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    with fake_vault() as found:
        yield found


def settings(vault: FakeVault, directory: Path, **more: Any) -> PlatformSettings:
    token = directory / "token"
    token.touch(0o600)
    token.write_text(f"{vault.token}\n")
    return PlatformSettings(vault=vault.url, vault_token=token, **more)


PLACE = VaultPlace(path="hpc/munge", field="key")


@pytest.mark.slow
def test_a_vault_is_read_and_what_is_wrong_with_it_is_said_without_its_token(
    vault: FakeVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.put("hpc/munge", key="one")
    client = Vault(settings(vault, tmp_path))
    assert client.read(PLACE) == (1, b"one")
    vault.put("hpc/munge", key="two")
    assert client.read(PLACE) == (2, b"two")

    def fails(with_: Vault, behaviour: Behaviour, words: str) -> None:
        vault.behaviour = behaviour
        with pytest.raises(Unavailable, match=words) as error:
            with_.read(PLACE)
        assert vault.token not in str(error.value)

    fails(client, "sealed", "sealed")
    asked = len(vault.asked)
    fails(client, "good", "sealed")
    assert len(vault.asked) == asked, "it is left alone for a while"
    monkeypatch.setattr(vaults, "AWAY", 0.0)
    client = Vault(settings(vault, tmp_path))
    fails(client, "forbidden", "refuses")
    fails(client, "elsewhere", "cannot be read")
    fails(client, "rubbish", "cannot be read")
    monkeypatch.setattr(vaults, "TIMEOUT", 0.3)
    fails(Vault(settings(vault, tmp_path)), "slow", "no answer")
    assert "/v1/elsewhere" not in vault.asked
    vault.release.set()
    vault.behaviour = "good"
    assert client.read(PLACE) == (2, b"two")
    with pytest.raises(Unavailable, match="no such secret"):
        client.read(VaultPlace(path="nowhere"))
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(Unavailable, match="chmod 600"):
        Vault(settings(vault, tmp_path)).read(PLACE)


def test_a_token_that_was_revoked_is_replaced_by_logging_in_again(vault: FakeVault, tmp_path: Path) -> None:
    secret = tmp_path / "secret-id"
    secret.touch(0o600)
    secret.write_text(vault.secret_id)
    client = Vault(PlatformSettings(vault=vault.url, vault_role=vault.role, vault_secret_id=secret))
    vault.put("hpc/munge", key="one")
    assert client.read(PLACE) == (1, b"one")
    vault.token = "another"
    assert client.read(PLACE) == (1, b"one")
    assert vault.logins == 2


def test_a_vault_over_a_network_in_clear_is_refused() -> None:
    with pytest.raises(BadRequest, match="https"):
        PlatformSettings(vault="http://vault.site.example:8200").check()


async def test_nodes_keep_what_they_have_while_the_vault_is_sealed_and_a_person_is_told(
    fleet: OpenFleet, vault: FakeVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vaults, "AWAY", 0.0)
    service = fleet.of(SecretService)
    alarms: list[Alarm] = []
    fleet.alarms.append(alarms.append)
    service._values._vault = Vault(settings(vault, tmp_path))
    vault.put("hpc/munge", key="one")
    await service.put(LOCAL_ADMIN, "munge", SecretSpec(select="n1", vault=PLACE))
    answer = await asked(fleet, "n1")
    assert values(answer) == {"munge": b"one"}
    with pytest.raises(Refused, match="Vault"):
        await service.rotate(LOCAL_ADMIN, "munge", NewValue(age=await encrypted(fleet, b"x")))

    vault.behaviour = "sealed"
    await service.put(LOCAL_ADMIN, "munge", SecretSpec(select="n[1-2]", vault=PLACE))
    answer = await asked(fleet, "n1", {"munge": answer["secrets"]["munge"]["stamp"]})
    assert (answer["secrets"], answer["keep"]) == ({}, ["munge"])
    assert answer["again"] > 0
    await until(lambda: any(alarm.severity == "warning" for alarm in alarms))
    assert "sealed" in alarms[-1].message and "sealed" in (await service.one(LOCAL_ADMIN, "munge")).trouble

    before = len(vault.asked)
    answers = await asyncio.gather(*(asked(fleet, node) for node in ("n1", "n2") * 50))
    assert all(answer["keep"] == ["munge"] for answer in answers)
    assert len(vault.asked) - before < 10, "nodes do not wait for it one after another"

    vault.behaviour = "good"
    vault.put("hpc/munge", key="two")
    await service._delivery._round()
    assert values(await asked(fleet, "n2")) == {"munge": b"two"}
    assert alarms[-1].severity == "ok"
