"""The whole machine at once: what its columns say is what nodes say, and what is followed misses nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from api_support import Service, open_service
from hypothesis import given
from hypothesis import strategies as st

from strata.core import intset
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.history import transitions
from strata.fleet.machine import service as machine_service
from strata.fleet.machine.columns import Coded, differences, in_runs
from strata.fleet.machine.records import MachineColumn
from strata.fleet.machine.service import MachineService
from strata.store.protocol import Put

WORDS = ("unknown", "off", "on", "hung")
codes = st.lists(st.integers(0, 3), max_size=60).map(lambda found: np.array(found, dtype=np.int32))


def spread(column: MachineColumn | dict[str, Any]) -> list[str]:
    """The word at each position, as a client finds it."""
    words, runs = (column.words, column.runs) if isinstance(column, MachineColumn) else column.values()
    return [words[code] for code, length in zip(runs[::2], runs[1::2], strict=True) for _ in range(length)]


@given(codes)
def test_runs_say_what_the_column_says(found: np.ndarray[Any, Any]) -> None:
    assert spread(in_runs(Coded(found, WORDS))) == [WORDS[code] for code in found]


@given(codes, st.randoms(use_true_random=False))
def test_who_takes_in_the_differences_has_the_later_column(found: np.ndarray[Any, Any], chance: Any) -> None:
    later = np.array([chance.choice((code, 0, 2)) for code in found], dtype=np.int32)
    known = [WORDS[code] for code in found]
    told = differences({"power": Coded(found, WORDS)}, {"power": Coded(later, WORDS)})
    for word, runs in told.get("power", {}).items():
        for position in intset.unpack(runs):
            known[position] = word
    assert known == [WORDS[code] for code in later]
    assert bool(told) == bool((found != later).any())


async def machine(service: Service, token: str = "", path: str = "") -> Any:
    async with service.client("front" if token else "admin", token) as client:
        answer = await client.get(f"/v1/machine{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_columns_say_what_each_node_says(tmp_path: Path) -> None:
    async with open_service(tmp_path, 5) as service:
        await service.put_group("odd", "n001,n003")
        await service.see("n002", "on")
        found = await machine(service)
        assert found["names"] == [f"n{number:03d}" for number in range(5)]
        assert found["groups"] == {"odd": [[1, 1], [3, 3]]}
        async with service.client() as client:
            nodes = [(await client.get(f"/v1/nodes/{name}")).json() for name in found["names"]]
        assert spread(found["columns"]["@state"]) == [node["state"] for node in nodes]
        for variable, column in found["columns"].items():
            if not variable.startswith("@"):
                assert spread(column) == [node["facts"][variable]["value"] for node in nodes], variable


async def test_a_node_that_is_to_be_off_and_is_so_is_off_wherever_states_are_told(tmp_path: Path) -> None:
    async with open_service(tmp_path, 3) as service:
        async with service.client() as client:
            for name, power in (("n000", "on"), ("n001", "off"), ("n002", "off")):
                put = await client.post("/v1/desires", json={"select": name, "set": {"power": power}})
                assert put.status_code == 200, put.text
                await service.see(name, power)
            controller = service.service.controller
            async with asyncio.timeout(60):
                while (controller.counts()["ready"], controller.counts()["off"]) != (1, 2):
                    await controller.stepped()
            controller._measure()
            shown = (await client.get("/v1/nodes", params={"select": "state:off", "fields": "name,state"})).json()
            assert [(one["name"], one["state"]) for one in shown["items"]] == [("n001", "off"), ("n002", "off")]
            told = (await client.get("/v1/status")).json()["by_state"]
            metrics = (await client.get("/metrics")).text
        states = spread((await machine(service))["columns"]["@state"])
        for state in told:
            assert told[state] == {"ready": 1, "off": 2}.get(state, 0) == states.count(state)
            assert f'strata_nodes{{state="{state}"}} {told[state]:.1f}' in metrics


async def test_whoever_is_limited_to_a_group_gets_only_its_nodes(tmp_path: Path) -> None:
    async with open_service(tmp_path, 5) as service:
        await service.put_group("odd", "n001,n003")
        await service.put_group("even", "n000,n002")
        found = await machine(service, await service.token("viewer", ["odd"]))
        assert found["names"] == ["n001", "n003"]
        assert found["groups"] == {"odd": [[0, 1]]}
        past = await machine(service, await service.token("viewer", ["odd"]), "/history")
        assert {last for change in past["changes"] for _, last in change["positions"]} <= {0, 1}


async def test_whoever_follows_hears_each_change_once_and_that_other_nodes_are_there(tmp_path: Path) -> None:
    async with open_service(tmp_path, 4) as service, asyncio.timeout(60):
        for name in ("n000", "n001", "n002", "n003"):
            await service.see(name, "off")
        async with aclosing(service.of(MachineService).follow(LOCAL_ADMIN, beat=0.01)) as beats:  # type: ignore[type-var]
            (first,) = await anext(beats)
            assert first.roster == (await machine(service))["roster"]
            assert first.columns == {}
            await service.see("n002", "on")
            heard = []
            while not heard or "power" not in heard[-1].columns:
                heard += await anext(beats)
            assert heard[-1].columns["power"] == {"on": ((2, 2),)}
            assert sum("power" in one.columns for one in heard) == 1
            await service.put_node("n9")
            while heard[-1].roster == first.roster:
                heard += await anext(beats)
            assert heard[-1].columns == {}
            assert heard[-1].roster == (await machine(service))["roster"]


async def test_many_who_follow_cost_one_look_a_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_service(tmp_path, 4) as service:
        followed = service.of(MachineService)
        looks = 0
        whole = followed._columns

        def counted(nodes: Any) -> Any:
            nonlocal looks
            looks += 1
            return whole(nodes)

        now = 1000.0
        monkeypatch.setattr(followed, "_columns", counted)
        monkeypatch.setattr(machine_service, "time", SimpleNamespace(monotonic=lambda: now))
        for _ in range(3):
            for _ in range(50):
                followed._moment(LOCAL_ADMIN, 0.25)
            now += 0.25
        assert looks == 3
        viewer = Principal(name="token:1", role="viewer")
        assert followed._moment(LOCAL_ADMIN, 0.25) is followed._moment(viewer, 0.25)


async def test_undoing_the_history_leads_back(tmp_path: Path) -> None:
    async with open_service(tmp_path, 3) as service:
        for power in ("off", "on"):
            for name in ("n000", "n002"):
                await service.see(name, power)
        async with service.client() as client:
            wish = {"select": "n001", "set": {"health": "ok"}}
            assert (await client.post("/v1/desires", json=wish)).status_code == 200
        past, now = await machine(service, path="/history"), await machine(service)
        assert {change["variable"] for change in past["changes"]} <= set(now["columns"])  # not what was wanted
        assert past["roster"] == now["roster"]
        power = spread(now["columns"]["power"])
        assert (power[0], power[2]) == ("on", "on")
        for change in reversed([one for one in past["changes"] if one["variable"] == "power"]):
            for position in intset.unpack(change["positions"]):
                assert power[position] == change["new"]
                power[position] = change["old"]
        assert power == ["unknown"] * 3


async def test_of_too_many_changes_the_newest_are_told_and_from_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_service(tmp_path, 2) as service:
        uid = int(service.service.registry.uids[0])
        for second in range(10):
            change = transitions.FactChange("power", "off", "on", "test", "seen", np.array([uid]))
            (row,) = transitions.rows_of(9e9 + second, "test", [change])
            key = transitions.key_of(int((9e9 + second) * 1e6))
            await service.store.txn([Put(key, transitions.encode(row))])
        monkeypatch.setattr(machine_service, "MOST_CHANGES", 4)
        monkeypatch.setattr(machine_service, "_PAGE", 3)
        past = await machine(service, path="/history?since=9000000000")
        assert [change["time"] for change in past["changes"]] == [9e9 + second for second in range(6, 10)]
        assert past["since"] == 9e9 + 6
        assert len(json.dumps(past)) < 2000
