"""Nodes that boot through one controller and are led by another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from strata.core.errors import Denied
from strata.provisioning.identity.identity import Identity
from strata.store.memory import MemoryStore
from strata.store.protocol import Event, Store
from support.boot_site import Boots, address_of, booting, make_csr


def led_elsewhere(site: Boots, attached: bool | None) -> list[tuple[str, str]]:
    """Every node has another leader, who says whether it runs; what that one is told."""
    told: list[tuple[str, str]] = []

    async def asked(name: str) -> bool | None:
        await asyncio.sleep(0)
        return attached

    site.is_attached = asked
    site.asked = lambda name, what: told.append((name, what))
    site.begun = lambda name: told.append((name, "begun"))
    return told


async def test_a_node_boots_through_a_controller_that_does_not_lead_it_and_its_leader_is_told(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        told = led_elsewhere(site, False)
        assert (await site.boot(1))["generation"] == 1
        assert told == [("n0001", "script"), ("n0001", "fragment"), ("n0001", "begun")]


async def test_a_user_on_a_node_that_runs_elsewhere_gets_nothing_and_is_told_of(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        told = led_elsewhere(site, True)
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 403
        assert (await site.script(1, agent=b"curl/8"))[0] == 403
        assert site.kinds == ["boot-data-refused", "boot-data-refused"]
        status, script = await site.script(1)
        assert status == 200
        assert "is believed to run" in script
        assert site.identity.record("n0001").generation == 0
        assert told == [("n0001", "script")], "its leader hears that something boots there"


async def test_while_its_leader_does_not_answer_a_node_waits_and_nobody_is_blamed(tmp_path: Path) -> None:
    async with booting(tmp_path) as site:
        led_elsewhere(site, None)
        assert (await site.get("/boot/fragment/n0001/1"))[0] == 503
        status, script = await site.script(1)
        assert status == 200
        assert "is believed to run" in script
        assert site.alarms == []
        assert site.identity.record("n0001").generation == 0


class Behind:
    """A store whose changes are not told of: a controller that has not heard yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def watch(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        await asyncio.Event().wait()
        yield ()


async def test_a_token_and_a_certificate_are_good_at_once_on_every_controller(tmp_path: Path) -> None:
    store = MemoryStore()
    async with booting(tmp_path, store=store) as site:
        behind = Identity(cast("Store", Behind(store)), site.sign, site.alarm, clock=lambda: site.now)
        await behind.start()
        try:
            token = await site.identity.open_boot("n0001", 1)
            await behind.redeem(token, make_csr("n0001")[0], address_of(1))
            first = behind.record("n0001").serial
            assert await site.identity.recognises("n0001", first)
            await site.identity.renew("n0001", first, make_csr("n0001")[0])
            renewed = site.identity.record("n0001").serial
            assert not behind.current("n0001", renewed)
            assert await behind.recognises("n0001", renewed)
            assert site.alarms == []

            again = await site.identity.open_boot("n0001", 2)
            await site.identity.redeem(again, make_csr("n0001")[0], address_of(1))
            assert not await behind.recognises("n0001", "A1B2"), "what nobody issued stays refused"
            with pytest.raises(Denied, match="redeemed before"):
                await behind.redeem(again, make_csr("n0001")[0], address_of(1))
        finally:
            await behind.stop()
    await store.close()
