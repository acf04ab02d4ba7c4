"""Node identity: one redemption wins, everything else is refused with an alarm, and no token is written anywhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Denied
from strata.fleet.alarm import Alarm
from strata.provisioning.identity.alarms import NODES, QUIET, FoldedAlarms
from strata.provisioning.identity.identity import TOKEN_TTL, UNHEARD, Identity, Redemption
from strata.provisioning.identity.records import PREFIX
from strata.provisioning.identity.tokens import new_token, parse_token
from strata.store.followed import Followed
from strata.store.open import open_store
from strata.store.protocol import Entry, Put
from support.boot_site import Boots, address_of, booting, make_csr
from support.etcd_cluster import EtcdCluster


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Boots]:
    async with booting(tmp_path) as found:
        yield found


@pytest.fixture
async def other(site: Boots) -> AsyncIterator[Identity]:
    """A second controller on the same store."""
    identity = Identity(site.store, site.sign, site.alarm, clock=lambda: site.now)
    await identity.start()
    yield identity
    await identity.stop()


async def refused(site: Boots, token: str, name: str = "n0001", peer: str = "") -> str:
    """The kind of alarm that a redemption raises."""
    before = len(site.alarms)
    with pytest.raises(Denied):
        await site.identity.redeem(token, make_csr(name)[0], peer)
    assert len(site.alarms) == before + 1
    return site.alarms[-1].kind


async def test_a_token_is_redeemed_once(site: Boots) -> None:
    token = await site.identity.open_boot("n0001", 1)
    await site.identity.redeem(token, make_csr("n0001")[0])
    assert await refused(site, token) == "token-replayed"


async def test_made_up_names_leave_nothing_behind(site: Boots, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(Followed, "wrote", lambda _, key, value, revision: taken.append(key))
    for number in range(10):
        assert await refused(site, new_token(f"made-up-{number}", 7).text) == "token-foreign"
    assert taken == []


async def test_a_boot_that_begins_while_its_record_is_looked_for_is_not_overlooked(
    site: Boots, other: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, begun = site.store.get, asyncio.Event()

    async def slow(key: str) -> Entry | None:
        found = await get(key)
        if not begun.is_set():
            begun.set()
            await site.identity.open_boot("n0001", 1)
        return found

    early = new_token("n0001", 1).text
    with monkeypatch.context() as patched:
        patched.setattr(site.store, "get", slow)
        with pytest.raises(Denied):
            await other.redeem(early, make_csr("n0001")[0])
    async with asyncio.timeout(120):
        while other.record("n0001").generation != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_of_many_redemptions_at_once_exactly_one_wins(site: Boots) -> None:
    token = await site.identity.open_boot("n0001", 1)
    csr = make_csr("n0001")[0]
    found = await asyncio.gather(*(site.identity.redeem(token, csr) for _ in range(10)), return_exceptions=True)
    assert sum(not isinstance(one, BaseException) for one in found) == 1
    assert all(isinstance(one, Denied) for one in found if isinstance(one, BaseException))
    assert site.kinds == ["token-replayed"] * 9


async def test_two_controllers_cannot_both_redeem_a_token(site: Boots, other: Identity) -> None:
    token = await site.identity.open_boot("n0001", 1)
    csr = make_csr("n0001")[0]
    async with asyncio.timeout(60):
        while other.record("n0001").generation != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # its watch brings the record
    found = await asyncio.gather(site.identity.redeem(token, csr), other.redeem(token, csr), return_exceptions=True)
    assert sum(isinstance(one, Denied) for one in found) == 1
    assert site.kinds == ["token-replayed"]


async def test_two_controllers_cannot_both_begin_a_boot(site: Boots, other: Identity) -> None:
    found = await asyncio.gather(
        site.identity.open_boot("n0001", 1), other.open_boot("n0001", 1), return_exceptions=True
    )
    assert sum(isinstance(one, Denied) for one in found) == 1


async def test_a_token_of_an_earlier_boot_is_stale(site: Boots) -> None:
    old = await site.identity.open_boot("n0001", 1)
    new = await site.identity.open_boot("n0001", 2)
    assert await refused(site, old) == "token-stale"
    await site.identity.redeem(new, make_csr("n0001")[0])
    assert await refused(site, old) == "token-stale"


async def test_a_token_expires(site: Boots) -> None:
    token = await site.identity.open_boot("n0001", 1)
    site.now += TOKEN_TTL
    assert await refused(site, token) == "token-stale"


async def test_a_token_is_good_for_its_own_node_only(site: Boots) -> None:
    token = await site.identity.open_boot("n0001", 1)
    assert await refused(site, token, "n0002") == "token-foreign"
    assert await refused(site, token, "n0001", address_of(2)) == "token-foreign"
    await site.identity.redeem(token, make_csr("n0001")[0], address_of(1))


async def test_a_made_up_token_is_refused(site: Boots) -> None:
    await site.identity.open_boot("n0001", 1)
    for made_up in (new_token("n0001", 1).text, new_token("n0001", 9).text, new_token("nobody", 1).text, "x" * 200, ""):
        assert await refused(site, made_up) == "token-foreign"


async def test_a_token_that_cannot_be_good_costs_no_look_into_the_store(
    site: Boots, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, looked = site.store.get, list[str]()

    async def counted(key: str) -> Entry | None:
        looked.append(key)
        return await get(key)

    monkeypatch.setattr(site.store, "get", counted)
    await site.identity.open_boot("n0001", 1)
    assert await refused(site, new_token("n0001", 1).text) == "token-foreign"
    assert await refused(site, new_token("n0001", 2 + UNHEARD).text) == "token-foreign"
    assert await refused(site, new_token("n0001", 2).text, peer=address_of(2)) == "token-foreign"
    assert looked == []
    assert await refused(site, new_token("n0001", 1 + UNHEARD).text, peer=address_of(1)) == "token-foreign"
    assert looked == [PREFIX + "n0001"]


async def test_a_wrong_signing_request_spends_no_token(site: Boots) -> None:
    token = await site.identity.open_boot("n0001", 1)
    for csr in (b"", b"x" * 1000, b"-----BEGIN CERTIFICATE REQUEST-----\n"):
        with pytest.raises(BadRequest):
            await site.identity.redeem(token, csr)
    await site.identity.redeem(token, make_csr("n0001")[0])


async def test_a_new_boot_supersedes_the_certificate_of_the_one_before(site: Boots) -> None:
    identity = site.identity
    await identity.redeem(await identity.open_boot("n0001", 1), make_csr("n0001")[0])
    first = identity.record("n0001").serial
    second_token = await identity.open_boot("n0001", 2)
    assert identity.current("n0001", first)  # until the new boot has arrived
    await identity.redeem(second_token, make_csr("n0001")[0])
    assert not identity.current("n0001", first)
    with pytest.raises(Denied):
        await identity.renew("n0001", first, make_csr("n0001")[0])
    assert site.kinds == ["certificate-superseded"]
    assert not identity.current("n0002", identity.record("n0001").serial)
    assert not identity.current("n0002", "")


async def test_a_renewal_whose_reply_was_lost_leaves_the_old_certificate_good(site: Boots) -> None:
    identity = site.identity
    await identity.redeem(await identity.open_boot("n0001", 1), make_csr("n0001")[0])
    first = identity.record("n0001").serial
    await identity.renew("n0001", first, make_csr("n0001")[0])
    lost = identity.record("n0001").serial
    assert identity.current("n0001", first) and identity.current("n0001", lost)
    await identity.renew("n0001", first, make_csr("n0001")[0])
    third = identity.record("n0001").serial
    assert identity.current("n0001", first) and identity.current("n0001", third)
    assert not identity.current("n0001", lost)
    with pytest.raises(Denied):
        await identity.renew("n0001", third, make_csr("n0002")[0])


async def test_a_revoked_certificate_speaks_for_nobody_until_the_next_boot(site: Boots) -> None:
    identity = site.identity
    await identity.redeem(await identity.open_boot("n0001", 1), make_csr("n0001")[0])
    serial = identity.record("n0001").serial
    await identity.revoke("n0001", "alice")
    assert not identity.current("n0001", serial)
    assert identity.record("n0001").is_revoked
    await identity.redeem(await identity.open_boot("n0001", 2), make_csr("n0001")[0])
    assert not identity.record("n0001").is_revoked


async def test_the_alarm_about_a_revoked_certificate_says_so_and_by_whom_also_after_the_next_boot(site: Boots) -> None:
    identity = site.identity
    await identity.redeem(await identity.open_boot("n0001", 1), make_csr("n0001")[0])
    first = identity.record("n0001").serial
    await identity.renew("n0001", first, make_csr("n0001")[0])
    second = identity.record("n0001").serial
    await identity.revoke("n0001", "alice")
    await identity.revoke("n0001", "bob")  # there is nothing left to revoke
    for serial in (first, second):
        assert "revoked" in identity.superseded("n0001", serial, "10.0.0.9").detail
    await identity.redeem(await identity.open_boot("n0001", 2), make_csr("n0001")[0])
    assert "revoked" in identity.superseded("n0001", second, "10.0.0.9").detail
    assert site.kinds == ["certificate-revoked"] * 3
    assert f"certificate {first} was revoked by alice at " in site.alarms[0].message
    identity.superseded("n0001", "ABC", "10.0.0.9")
    assert site.kinds[-1] == "certificate-superseded"


async def test_a_further_condition_can_refuse_without_spending_the_token(site: Boots) -> None:
    asked: list[Redemption] = []

    async def measured(redemption: Redemption) -> None:
        asked.append(redemption)
        if len(asked) == 1:
            raise Denied("the measurements are not those of a minimal OS of ours")

    identity = Identity(site.store, site.sign, site.alarm, conditions=[measured], clock=lambda: site.now)
    await identity.start()
    token = await identity.open_boot("n0003", 1)
    with pytest.raises(Denied):
        await identity.redeem(token, make_csr("n0003")[0])
    await identity.redeem(token, make_csr("n0003")[0])
    assert [(one.node, one.generation) for one in asked] == [("n0003", 1)] * 2
    await identity.stop()


async def test_no_token_is_in_the_store_a_log_an_error_an_alarm_or_a_repr(
    site: Boots, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = await site.boot(1)
    canary = told["token"].split(".")[1]
    texts: list[str] = []
    csr = make_csr("n0001")[0]
    for name in ("n0002", "n0001", "n0001"):
        try:
            await site.identity.redeem(told["token"], make_csr(name)[0])
        except Denied as error:
            texts += [str(error), repr(error)]
    await site.identity.renew("n0001", site.identity.record("n0001").serial, csr)
    await site.script(1)
    token = parse_token(told["token"])
    assert token is not None and token.secret == canary
    texts += [repr(token), repr(site.identity.record("n0001")), repr(site.alarms), caplog.text]
    texts += [str(record.__dict__) for record in caplog.records]
    page = await site.store.range("")
    texts += [entry.value.decode("latin-1") for entry in page.entries]
    assert page.entries and site.alarms
    assert not [text for text in texts if canary in text]


async def test_a_restart_loses_neither_generation_nor_certificate(site: Boots) -> None:
    await site.identity.redeem(await site.identity.open_boot("n0001", 1), make_csr("n0001")[0])
    await site.identity.stop()
    again = Identity(site.store, site.sign, site.alarm)
    await again.start()
    assert again.record("n0001") == site.identity.record("n0001")
    assert again.current("n0001", site.identity.record("n0001").serial)
    with pytest.raises(Denied):
        await again.open_boot("n0001", 1)
    await again.open_boot("n0001", 2)
    await again.stop()
    await site.identity.start()


async def test_boots_that_begin_together_are_written_together(site: Boots) -> None:
    before = await site.store.revision()
    await asyncio.gather(*(site.identity.open_boot(f"x{number}", 1) for number in range(500)))
    assert await site.store.revision() - before <= 2
    assert len((await site.store.range(PREFIX)).entries) == 500


async def test_one_record_that_somebody_else_changed_does_not_fail_the_others(site: Boots, other: Identity) -> None:
    await other.open_boot("x7", 1)  # the watch has not brought it yet
    found = await asyncio.gather(
        *(site.identity.open_boot(f"x{number}", 1) for number in range(20)), return_exceptions=True
    )
    assert [isinstance(one, Denied) for one in found] == [number == 7 for number in range(20)]


async def test_a_record_that_cannot_be_read_stops_nobody(site: Boots) -> None:
    await site.store.txn([Put(PREFIX + "n0002", b"\xff nonsense")])
    await site.identity.stop()
    await site.identity.start()
    await site.identity.open_boot("n0001", 1)


async def test_the_trouble_of_a_boot_is_over_when_the_node_has_arrived_with_another(site: Boots) -> None:
    token = await site.identity.open_boot("n0001", 1)
    site.alarms.over.clear()
    await site.identity.redeem(token, make_csr("n0001")[0])
    assert ("boot-failed", "n0001") in site.alarms.over
    assert ("token-replayed", "n0001") not in site.alarms.over, "somebody else's doing does not end with that"


async def test_a_certificate_of_a_node_that_was_deleted_is_refused_without_an_alarm(site: Boots) -> None:
    denied = site.identity.superseded("n0001", "AB12", "10.0.0.1")
    assert isinstance(denied, Denied) and "earlier boot" in denied.detail
    assert not site.alarms


def test_that_something_is_over_is_never_held_back_and_what_comes_back_is_told() -> None:
    told: list[Alarm] = []
    alarms = FoldedAlarms(told.append, clock=lambda: 0.0)
    for severity in ("critical", "critical", "ok", "critical"):
        alarms(Alarm(kind="boot-failed", message="m", node="n1", severity=severity))  # type: ignore[arg-type]
    assert [alarm.severity for alarm in told] == ["critical", "ok", "critical"]


def test_troubles_of_many_nodes_that_nobody_caused_are_all_told() -> None:
    told: list[Alarm] = []
    alarms = FoldedAlarms(told.append, clock=lambda: 0.0)
    for number in range(5 * NODES):
        alarms(Alarm(kind="boot-failed", message="m", node=f"n{number}"))
    assert len(told) == 5 * NODES


def test_an_alarm_that_comes_again_and_again_is_told_once_a_minute() -> None:
    now = 0.0
    told: list[Alarm] = []
    sink = FoldedAlarms(told.append, clock=lambda: now)
    for number in range(1000):
        sink(Alarm(kind="token-replayed", message="again", node="n1", peer="10.0.0.1"))
        sink(Alarm(kind="boot-data-refused", message="scan", node=f"n{number}", peer="10.0.0.1"))
    assert len(told) == 1 + NODES
    sink(Alarm(kind="token-replayed", message="again", node="n1", peer="10.0.0.2"))
    assert len(told) == 2 + NODES
    now = QUIET
    sink(Alarm(kind="token-replayed", message="again", node="n1", peer="10.0.0.1"))
    assert len(told) == 3 + NODES


@pytest.mark.server
@pytest.mark.slow
async def test_many_boots_at_once_are_kept_by_etcd_too(etcd_cluster: EtcdCluster, tmp_path: Path) -> None:
    store = open_store(etcd_cluster.url(f"boot-{tmp_path.name}"))
    async with booting(tmp_path, store=store) as site:
        tokens = await asyncio.gather(*(site.identity.open_boot(f"x{number}", 1) for number in range(300)))
        await site.identity.redeem(tokens[7], make_csr("x7")[0])
        assert await refused(site, tokens[7], "x7") == "token-replayed"
        with pytest.raises(Denied):
            await site.identity.open_boot("x8", 1)
        await site.identity.open_boot("x8", 2)
    await store.close()
