"""Policy documents: what they say, and what is said about wrong ones."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from strata.core.errors import BadRequest
from strata.core.units import seconds, show_watts, watts
from strata.power.policies.policy import Hours, parse

EXAMPLES = Path(__file__).parents[2] / "docs" / "how-to" / "examples"


def test_the_examples_of_the_documentation_are_policies() -> None:
    over = parse((EXAMPLES / "over-provisioned.yaml").read_text(), source="over")
    assert over.limit == 2e6 and {"over-provisioned", "idle-pool"} == set(over.rules)
    queues = parse((EXAMPLES / "capped-queues.yaml").read_text(), source="queues")
    assert [queue.cap for queue in queues.queues.values()] == [200.0, 300.0, None]


def test_an_empty_document_asks_for_nothing() -> None:
    policy = parse("", source="none")
    assert policy.limit is None and policy.cap is None and not policy.queues


def test_an_empty_section_has_its_defaults() -> None:
    part = parse("over-provisioned:", source="x").rules["over-provisioned"]
    assert part is not None and (part.rise, part.fall, part.mood) == (7, 5, "by-demand")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: capped queues", "site.yaml: name: 'capped queues' is no name: 1 to 63 letters, digits"),
        ("limit: 2XW", "site.yaml: limit: '2XW' is not a power such as 250W, 1.5kW, 2MW"),
        ("limt: 2MW", "site.yaml: unknown key 'limt'; did you mean 'limit'? accepted are name, "),
        ("every: often", "every: 'often' is not a length of time"),
        ("idle-pool: {low: 3}", "site.yaml: idle-pool: high missing"),
        ("idle-pool: {low: 9, high: 3}", "idle-pool: low must not be above high"),
        ("idle-pool: {low: x, high: 3}", "idle-pool.low: expected a whole number"),
        ("idle-pool: [1]", "idle-pool: expected a mapping"),
        ("queues: {slow: {capp: 1}}", "queues.slow: unknown key 'capp'; did you mean 'cap'?"),
        ("queues: {slow: {prefer: {days: foo}}}", "queues.slow.prefer: 'foo' is not a day"),
        ("queues: {slow: {prefer: {from: '9:00', to: '8:00'}}}", "from must be before to"),
        ("queues: {slow: {prefer: {from: '9:99'}}}", "'9:99' is not a time of day"),
        ("queues: {slow: {prefer: {zone: Mars/Base}}}", "no such time zone: 'Mars/Base'"),
        ("queues: {slow: {cap: 900W}}", "caps must be between 200 W and 400 W"),
        ("queues: 3", "queues: expected a mapping"),
        ("over-provisioned: {mood: mad}", "over-provisioned.mood: 'mad' is none of aggressive, gentle and by-demand"),
        ("over-provisioned: {margins: {m2: 1}}", "over-provisioned.margins: unknown key 'm2'; accepted are life"),
        ("cap: 250W\nover-provisioned:", "only one of cap, queues and over-provisioned"),
        ("limit: 1MW\nband: 2MW", "band is the lower edge"),
        ("nodes: {idle: 300W}", "nodes: idle, low and high must ascend in this order"),
        ("inrush: {node: 200W, pdu: 100W}", "inrush: node must be above 0 W, and no limit below it"),
        ("cap: {a: b}", "cap: expected one value"),
        ("- 1", "site.yaml: expected a mapping"),
        ("limit: 1W\nlimit: 2W", "line 2, column 1: not YAML: key 'limit' occurs twice"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(text, source="site.yaml")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"), [("2MW", 2e6), ("1.5 kW", 1500.0), ("250W", 250.0), ("250", 250.0), ("1GW", 1e9)]
)
def test_watts_are_read_as_people_write_them(text: str, value: float) -> None:
    assert watts(text) == value


@pytest.mark.parametrize("text", ["", "W", "-3W", "nan", "1e9", "2 MWh", "inf", "1" * 400])
def test_what_is_no_power_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a power"):
        watts(text)


def test_lengths_of_time_are_read_as_people_write_them() -> None:
    assert [seconds(text) for text in ("90", "90s", "10m", "1h30m", "1d")] == [90, 90, 600, 5400, 86400]
    with pytest.raises(ValueError, match="is not a length of time"):
        seconds("soon")


def test_watts_are_shown_short() -> None:
    assert [show_watts(value) for value in (250, 1500, 2e6)] == ["250 W", "1.5 kW", "2 MW"]


def test_hours_are_those_of_their_zone() -> None:
    hours = Hours(days="mon-fri", start="8:00", end="17:00", zone="Europe/Berlin")
    monday = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)

    def at(day: int, hour: float) -> bool:
        return hours.now((monday + dt.timedelta(days=day, hours=hour)).timestamp())

    assert at(0, 7) and at(4, 15.9)
    assert not at(0, 6.9) and not at(0, 16) and not at(5, 10)


def test_days_may_run_over_the_end_of_the_week() -> None:
    assert Hours(days="sat-mon, wed").weekdays() == {5, 6, 0, 2}
