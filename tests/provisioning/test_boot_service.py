"""The boot service: who gets a script and a fragment, and who does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import Denied
from strata.core.node import Interface, Node
from strata.provisioning.boot.records import Profile
from support.boot_site import MINOS, address_of, boot_json, booting, mac_of, make_csr


async def test_a_node_gets_its_script_its_fragment_and_a_certificate(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        status, script = await site.script(1)
        assert status == 200
        assert script.startswith("#!ipxe\n")
        assert f"/{MINOS}/vmlinuz" in script
        assert "console=ttyS0" in script and "panic=10" in script
        assert "n0001, boot 1" in script

        told = await site.boot(1)
        assert told["node"] == "n0001"
        assert told["generation"] == 1
        assert told["controllers"] == ["https://127.0.0.1:8443"]
        assert told["profile"] == site.profiles.label("default", "x86_64")
        assert told["net"]["interfaces"] == [
            {"mac": mac_of(1), "address": f"{address_of(1)}/8", "gateway": "", "dns": []}
        ]

        issued = await site.identity.redeem(told["token"], make_csr("n0001")[0], address_of(1))
        assert issued.certificate.startswith("-----BEGIN CERTIFICATE")
        record = site.identity.record("n0001")
        assert site.identity.current("n0001", record.serial)
        assert not site.alarms


async def test_asking_for_a_script_changes_nothing(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        before = await site.store.revision()
        first, again = await site.script(1), await site.script(1)
        assert first == again
        assert await site.store.revision() == before


async def test_a_head_request_for_a_fragment_begins_no_boot(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        assert (await site.get("/boot/fragment/n0001/1", method="HEAD"))[0] == 200
        assert site.identity.record("n0001").generation == 0


async def test_a_generation_begins_once_and_asking_again_is_refused_with_an_alarm(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        asks = [site.get("/boot/fragment/n0001/1") for _ in range(8)]
        answers = await asyncio.gather(*asks)
        assert sorted(status for status, _ in answers) == [200, *[403] * 7]
        assert set(site.kinds) == {"boot-data-refused"}
        assert (await site.get("/boot/fragment/n0001/3"))[0] == 403  # nor one that is not next
        assert (await site.get("/boot/fragment/n0001/2"))[0] == 200


@pytest.mark.parametrize("path", ["/boot/script/n0001?mac=" + mac_of(1), "/boot/fragment/n0001/1"])
async def test_another_address_gets_neither_script_nor_fragment(tmp_path: Path, path: str) -> None:
    async with booting(tmp_path) as site:
        assert (await site.get(path, 2))[0] == 403
        assert [(alarm.kind, alarm.node, alarm.peer) for alarm in site.alarms] == [
            ("boot-data-refused", "n0001", address_of(2))
        ]
        assert site.identity.record("n0001").generation == 0


@pytest.mark.parametrize("path", ["/boot/script/n0001?mac=" + mac_of(1), "/boot/fragment/n0001/1"])
async def test_a_user_on_a_running_node_gets_nothing_and_is_told_of(tmp_path: Path, path: str) -> None:
    async with booting(tmp_path) as site:
        site.attached.add("n0001")
        assert (await site.get(path, agent=b"curl/7.88"))[0] == 403
        assert site.kinds == ["boot-data-refused"]


async def test_a_machine_that_died_while_its_agent_was_attached_boots_at_once(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        asked: list[tuple[str, str]] = []
        site.asked = lambda name, what: asked.append((name, what))
        site.attached.add("n0001")
        site.dead.add("n0001")
        assert "vmlinuz" in (await site.script(1))[1]
        assert asked[0] == ("n0001", "script"), "known before its agent is asked, so that it is a fact with its silence"
        assert (await site.boot(1))["generation"] == 1
        assert not site.alarms


async def test_a_machine_that_boots_while_its_agent_is_not_missed_yet_waits(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        site.attached.add("n0001")
        status, script = await site.script(1)
        assert status == 200
        assert "sleep 10" in script and "vmlinuz" not in script and "fragment" not in script
        assert not site.alarms
        site.attached.clear()
        assert "vmlinuz" in (await site.script(1))[1]


async def test_after_a_restart_nodes_that_may_be_running_wait_until_their_agents_had_time(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        told = await site.boot(1)
        await site.identity.redeem(told["token"], make_csr("n0001")[0], address_of(1))
        await site.service.stop()
        await site.service.start(port=0)
        assert "vmlinuz" not in (await site.script(1))[1]
        assert (await site.get("/boot/fragment/n0001/2"))[0] == 503
        assert "vmlinuz" in (await site.script(2))[1]  # this one never arrived: it cannot be running
        site.now += 60
        assert "vmlinuz" in (await site.script(1))[1]
        assert not site.alarms


async def test_a_held_node_waits_and_gets_no_fragment(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        site.held["n0001"] = "broken"
        status, script = await site.script(1)
        assert status == 200
        assert "is held" in script and "vmlinuz" not in script
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 403
        assert site.kinds == ["boot-data-refused"]


async def test_a_node_that_never_arrives_is_held_with_what_its_console_said(tmp_path: Path) -> None:
    async with booting(tmp_path, attempts=3) as site:
        site.tail = "Kernel panic\x1b[31m - not syncing:\n\x00 no init found " + "x" * 1000
        for _ in range(3):
            await site.boot(1)
        status, script = await site.script(1)
        assert status == 200
        assert "is held" in script
        await asyncio.wait_for(site.told.wait(), 60)
        reason = site.held["n0001"]
        assert reason.startswith("3 boots in a row failed: the node never reported; its console said: ")
        assert reason.isprintable() and len(reason) <= 500
        assert site.kinds == ["boot-failed"]
        assert site.identity.record("n0001").attempts == 3, "it is still so that they did not arrive"
        del site.held["n0001"]  # a person looked at it
        for _ in range(3):
            assert "vmlinuz" in (await site.script(1))[1]
            await site.boot(1)
        site.told.clear()
        assert "is held" in (await site.script(1))[1], "it had all its tries again, and no more"
        await asyncio.wait_for(site.told.wait(), 60)
        assert site.held["n0001"].startswith("6 boots in a row failed: the node never reported")


async def test_of_a_panic_the_reason_is_told_and_not_the_end_of_its_trace(tmp_path: Path) -> None:
    async with booting(tmp_path, attempts=1) as site:
        site.tail = "[ 1.0] booting\n[ 2.0] Kernel panic - not syncing: VFS: no root\n" + "[ 2.1] ? mount+0x1\n" * 100
        await site.boot(1)
        await site.script(1)
        await asyncio.wait_for(site.told.wait(), 60)
        assert "its console said: Kernel panic - not syncing: VFS: no root" in site.held["n0001"]


async def test_a_boot_that_arrives_makes_earlier_failures_forgotten(tmp_path: Path) -> None:
    async with booting(tmp_path, attempts=3) as site:
        for _ in range(2):
            await site.boot(1)
        told = await site.boot(1)
        await site.identity.redeem(told["token"], make_csr("n0001")[0])
        assert "vmlinuz" in (await site.script(1))[1]
        assert not site.held


async def test_an_unknown_machine_is_refused_with_an_alarm_or_discovered_as_the_site_wants(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        assert (await site.get("/boot/script?mac=aa:bb:cc:dd:ee:ff", 77))[0] == 403
        assert (await site.get("/boot/discovery", 77))[0] == 404
        assert site.kinds == ["rogue-machine"]
    async with booting(tmp_path, unknown="discover") as site:
        status, script = await site.get("/boot/script?mac=aa:bb:cc:dd:ee:ff", 77)
        assert status == 200 and b"/boot/script?mac=aa:bb:cc:dd:ee:ff&arch=${buildarch}&wait=2 ||" in script
        status, script = await site.get("/boot/script?mac=aa:bb:cc:dd:ee:ff&arch=i386&wait=2", 77)
        assert status == 200 and b"/boot/discovery" in script and f"/{MINOS}/vmlinuz".encode() in script
        status, script = await site.get("/boot/script?mac=aa:bb:cc:dd:ee:ff&arch=arm64&wait=2", 77)
        assert status == 200 and b"nothing to boot yet for aarch64" in script and b"vmlinuz" not in script
        told = boot_json((await site.get("/boot/discovery", 77))[1])
        assert told["discovery"] is True
        assert set(told) == {"discovery", "controllers", "ca"}
        assert not site.alarms


async def test_a_replaced_machine_in_the_same_place_boots_as_the_node(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        # DHCP knew it by its cable and named the node in the address.
        status, script = await site.get("/boot/script/n0001?mac=aa:bb:cc:dd:ee:ff", 1)
        assert status == 200 and b"/boot/fragment/n0001/1" in script


async def test_firmware_asks_how_large_its_loader_is_before_it_fetches_it(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        assert await site.get("/boot/efi/ipxe.efi", 77, method="HEAD") == (200, b"")
        status, body = await site.get("/boot/efi/ipxe.efi", 77)
        assert (status, len(body)) == (200, 1002)
        assert (await site.get("/boot/efi/../script", 77))[0] == 404


async def test_the_waits_grow_from_script_to_script(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        first = (await site.script(1))[1]
        assert "sleep 2\nchain" in first and "&wait=4 " in first
        later = (await site.get(f"/boot/script/n0001?mac={mac_of(1)}&wait=32"))[1].decode()
        assert "sleep 32\n" in later and "&wait=60 " in later and "sleep 2\n" not in later
        odd = (await site.get(f"/boot/script/n0001?mac={mac_of(1)}&wait={'9' * 5000}"))[1].decode()
        assert odd == first


async def test_a_node_that_wants_a_profile_which_is_not_there_waits(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        site.profile["n0001"] = "nowhere"
        status, script = await site.script(1)
        assert status == 200 and "cannot boot yet" in script
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 503
        await site.profiles.put("nowhere", Profile(parameters="quiet"), "anna")
        script = (await site.script(1))[1]
        assert " quiet" in script and "vmlinuz" in script


async def test_the_store_being_away_is_an_answer_that_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strata.core.errors import Unavailable

    async with booting(tmp_path) as site:

        async def away(*_: object, **__: object) -> int:
            raise Unavailable("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(site.store, "txn", away)
            assert (await site.get("/boot/fragment/n0001/1"))[0] == 503
        assert (await site.boot(1))["generation"] == 1


async def test_a_token_of_one_node_is_no_good_for_another(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        told = await site.boot(1)
        with pytest.raises(Denied):
            await site.identity.redeem(told["token"], make_csr("n0002")[0], address_of(2))
        with pytest.raises(Denied):
            await site.identity.redeem(told["token"], make_csr("n0001")[0], address_of(2))
        assert site.kinds == ["token-foreign", "token-foreign"]
        await site.identity.redeem(told["token"], make_csr("n0001")[0], address_of(1))


async def test_the_boot_data_of_a_node_that_is_switched_off_go_to_nobody(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        site.off["n0001"] = True
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 403
        (alarm,) = site.alarms
        assert (alarm.kind, alarm.node, alarm.peer) == ("boot-data-refused", "n0001", address_of(1))
        assert "switched off" in alarm.message
        assert site.identity.record("n0001").generation == 0
        site.off.clear()
        assert (await site.boot(1))["generation"] == 1, "nothing was used up"


async def test_a_node_of_which_it_is_not_known_in_time_whether_it_has_power_waits_and_nobody_is_blamed(
    tmp_path: Path,
) -> None:
    async with booting(tmp_path) as site:
        site.off["n0001"] = None
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 503
        assert site.alarms == []
        assert site.identity.record("n0001").generation == 0


OWN, SPARE, OTHER = mac_of(1), "52:54:00:aa:00:01", "52:54:00:bb:00:66"


@pytest.mark.parametrize(
    ("asks", "seen", "leased", "status"),
    [
        (Interface(mac=OWN), OWN, "", 200),
        (Interface(mac=OWN), "", "", 200),  # behind a router: nothing is seen
        (Interface(mac=OWN), SPARE, "", 200),  # another port of the same node, as in a bond
        (Interface(mac=OWN), OTHER, "", 403),
        (Interface(mac=OWN), OTHER, OTHER, 403),  # a lease counts only by the place
        (Interface(), OTHER, "", 200),  # nobody said which MAC it has
        (Interface(mac=OWN, port="sw/1"), OTHER, OTHER, 200),  # a new machine in an old place
        (Interface(mac=OWN, port="sw/1"), OTHER, "", 200),  # the lease was before the service started
        (Interface(mac=OWN, port="sw/1"), OTHER, "52:54:00:cc:00:01", 403),
        (Interface(port="sw/1"), OTHER, "52:54:00:cc:00:01", 403),
    ],
)
async def test_boot_data_go_to_the_macs_of_a_node_or_to_whoever_is_plugged_in_at_its_place(
    tmp_path: Path, asks: Interface, seen: str, leased: str, status: int
) -> None:
    async with booting(tmp_path, nodes=1) as site:
        own = msgspec.structs.replace(asks, address=address_of(1))
        site.directory.update([Node(name="n0001", uid=1, interfaces=(own, Interface(mac=SPARE)))])
        site.seen.macs[address_of(1)], site.leased[address_of(1)] = seen, leased
        assert (await site.get("/boot/fragment/n0001/1"))[0] == status
        assert site.kinds == (["boot-data-refused"] if status == 403 else [])


async def test_macs_are_not_compared_where_others_answer_for_machines(tmp_path: Path) -> None:
    subnet = {"network": "127.0.0.0/8", "interface": "lo", "server": "127.0.0.1", "check_macs": False}
    async with booting(tmp_path, subnets=[subnet]) as site:
        site.seen.macs[address_of(1)] = OTHER
        assert (await site.boot(1))["generation"] == 1
