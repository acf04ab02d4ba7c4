"""Who feeds whom: read off locations and labels, for a whole fleet at once."""

from __future__ import annotations

import numpy as np

from strata.hardware.feeds.feeds import Coded, Place, feeds_of
from support.work import counted


def coded(words: list[str]) -> Coded:
    table = ["", *sorted({word for word in words if word})]
    return Coded(table, np.array([table.index(word) for word in words], dtype=np.int32))


NAMES = ["outlet-a", "outlet-b", "c0", "n1", "n2", "free"]
LABELS = coded(["", "", "outlet-a/outlet-b", "", "outlet-a", ""])
CHASSIS = Place(coded(["", "", "x1c0", "x1c0", "x1c0", ""]), {"x1c0": 2})
OUTLETS = np.array([True, True, False, False, False, False])


def find(name: str) -> int:
    return NAMES.index(name) if name in NAMES else -1


def feeders(labels: Coded, *places: Place) -> dict[str, list[str]]:
    feeds = feeds_of(len(NAMES), labels, find, places, OUTLETS)
    return {name: [NAMES[f] for f in feeds.feeders[feeds.kinds[i]]] for i, name in enumerate(NAMES)}


def test_a_chassis_feeds_what_is_in_it_and_a_label_says_it_otherwise() -> None:
    found = feeders(LABELS, CHASSIS)
    assert found["c0"] == ["outlet-a", "outlet-b"], "two feeds"
    assert found["n1"] == ["c0"]
    assert found["n2"] == ["outlet-a"], "what is said counts more than where it is"
    assert found["outlet-a"] == found["free"] == []


def test_the_nearest_component_feeds() -> None:
    slot = Place(coded(["", "", "", "x1c0s0", "", "x1c0s0"]), {"x1c0s0": 5})
    found = feeders(coded([""] * 6), CHASSIS, slot)
    assert found["n1"] == ["free"] and found["n2"] == ["c0"] and found["free"] == []


def test_an_outlet_is_not_fed_by_the_cabinet_that_it_is_in() -> None:
    cabinet = Place(coded(["x1"] * 6), {"x1": 2})
    assert feeders(coded([""] * 6), cabinet)["outlet-a"] == []
    assert feeders(coded([""] * 6), cabinet)["n1"] == ["c0"]


def test_a_feeder_that_is_not_there_is_named() -> None:
    feeds = feeds_of(len(NAMES), coded(["", "", "", "ghost", "", ""]), find, [], OUTLETS)
    assert feeds.missing[int(feeds.kinds[3])] == "ghost" and feeds


def test_a_fleet_in_which_nothing_feeds_anything_is_empty() -> None:
    assert not feeds_of(len(NAMES), coded([""] * 6), find, [], OUTLETS)


def test_a_hundred_thousand_nodes_are_looked_at_by_what_feeds_them_and_not_one_by_one() -> None:
    size = 100_000
    chassis = np.arange(size) // 64 + 1
    words = ["", *(f"x{i}" for i in range(1, chassis[-1] + 1))]
    place = Place(Coded(words, chassis.astype(np.int32)), {word: i * 64 for i, word in enumerate(words[1:])})
    with counted() as work:
        feeds = feeds_of(size, Coded([""], np.zeros(size, dtype=np.int32)), find, [place], np.zeros(size, dtype=bool))
    assert work.calls < size / 4
    assert feeds.feeders[feeds.kinds[70]] == (64,) and len(feeds.fed_by(64)) == 1
