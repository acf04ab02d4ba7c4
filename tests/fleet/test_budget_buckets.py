"""Which bucket of a budget each node is in, and what becomes of a budget that concerns nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import BadRequest
from strata.core.model import Budget
from strata.daemon.running import model_of
from strata.daemon.settings import Settings
from strata.fleet.controller.takeover import bucket_keys
from support.registry_support import a_fleet, spec

NODES = [
    spec("n1", location="x1c0s0b0n0", labels={"row": "a"}),
    spec("n2", location="x2c0s0b0n0", labels={"row": "a"}),
    spec("n3", location="x2c0s1b0n0"),
]


async def buckets(per: str, *, located: bool = True) -> list[list[int]]:
    async with a_fleet() as fleet:
        await fleet.edits.create_nodes(NODES if located else [spec("n1"), spec("n2"), spec("n3")], "alice")
        await fleet.settled()
        await fleet.edits.put_group("none", fleet.at(), "alice")
        await fleet.settled()
        return [keys.tolist() for keys in bucket_keys(Budget(name="b", limit=1, per=per), fleet.registry)]


async def test_nodes_without_the_label_are_outside_where_others_have_it() -> None:
    assert await buckets("label:row") == [[0, 0, -1]]
    assert await buckets("cabinet") == [[0, 1, 1]]


@pytest.mark.parametrize("per", ["label:rwo", "group:login", "pdu"])
async def test_a_budget_by_what_no_node_has_is_kept_for_the_whole_fleet(per: str) -> None:
    assert await buckets(per) == [[0, 0, 0]]


async def test_a_budget_of_an_empty_group_or_by_locations_where_there_are_none_concerns_nobody() -> None:
    assert await buckets("group:none") == [[-1, -1, -1]]
    assert await buckets("cabinet", located=False) == [[-1, -1, -1]]


def test_a_service_does_not_start_with_a_brake_that_cannot_hold_and_names_the_file(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("budgets: {inrush-slow: {mutations: [power-on], per: cabnet, limit: 8}}\n")
    with pytest.raises(BadRequest) as refused:
        model_of(Settings(state_dir=tmp_path, models=(site,)))
    assert refused.value.where == f"{site}: budget inrush-slow"
