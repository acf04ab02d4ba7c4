"""What is pushed to us: believed from whom we told where to push, bounded, and taken once."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from strata.core.errors import BadRequest, Denied
from strata.hardware.events.inbox import BODY_MOST, Inbox, InboxSettings
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.site import Site

ONE, OTHER = (Site(f"http://{name}", ((f"http://{name}", name),)) for name in ("b1", "b2"))


class Bench:
    """An inbox and what came out of it."""

    def __init__(self, **settings: float) -> None:
        self.now = time.time()
        self.taken: list[HardwareEvent] = []
        self.inbox = Inbox(b"k" * 32, self.taken.extend, settings=InboxSettings(**settings), clock=lambda: self.now)

    async def known(self) -> Bench:
        await self.inbox.know({site.root: site for site in (ONE, OTHER)})
        return self

    def push(self, *events: dict[str, Any], root: str = ONE.root) -> int:
        return self.inbox.receive(self.inbox.token(root), json.dumps({"Events": events}).encode())


async def test_a_push_speaks_for_the_bmc_that_was_given_the_token() -> None:
    bench = await Bench().known()
    bench.push({"Message": "hot", "Severity": "Critical"}, root=OTHER.root)
    assert [(event.bmc, event.node) for event in bench.taken] == [("http://b2", "b2")]


@pytest.mark.parametrize("token", ["", ".", "x" * 64, "{id}.", "{id}.{other}", "{stranger}", "{id}.ümlaut"])
async def test_a_token_that_we_did_not_give_is_denied(token: str) -> None:
    bench = await Bench().known()
    mine, other = bench.inbox.token(ONE.root), bench.inbox.token(OTHER.root)
    stranger = bench.inbox.token("http://b3")
    text = token.replace("{id}", mine.split(".")[0]).replace("{other}", other.split(".")[1])
    with pytest.raises(Denied):
        bench.inbox.receive(text.replace("{stranger}", stranger), b'{"Events": []}')
    assert bench.taken == []


async def test_a_token_is_worth_nothing_under_another_key_and_no_key_is_shown() -> None:
    bench = await Bench().known()
    other = Inbox(b"x" * 32, bench.taken.extend)
    await other.know({ONE.root: ONE})
    with pytest.raises(Denied):
        other.receive(bench.inbox.token(ONE.root), b'{"Events": []}')
    assert "kkk" not in repr(bench.inbox)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"\xff\xfe", b"[" * 100_000, b'{"Events": 3}', b"x" * (BODY_MOST + 1)]
)
async def test_nonsense_is_a_bad_request(body: bytes) -> None:
    bench = await Bench().known()
    with pytest.raises(BadRequest):
        bench.inbox.receive(bench.inbox.token(ONE.root), body)


async def test_a_metric_report_is_no_event_and_goes_to_whoever_measures() -> None:
    told: list[tuple[Site, object]] = []
    inbox = Inbox(b"k" * 32, lambda events: None, reports=lambda site, report: told.append((site, report)))
    await inbox.know({ONE.root: ONE})
    report = {"@odata.type": "#MetricReport.v1_5_0.MetricReport", "MetricValues": [{"MetricValue": "7"}]}
    assert inbox.receive(inbox.token(ONE.root), json.dumps(report).encode()) == 0
    assert told == [(ONE, report)]


async def test_an_event_that_is_pushed_again_is_taken_once() -> None:
    bench = await Bench().known()
    event = {"Message": "hot", "EventId": "7"}
    assert [bench.push(event), bench.push(event), bench.push(event | {"EventId": "8"})] == [1, 0, 1]


async def test_an_event_that_was_pushed_is_known_when_the_log_has_it_too() -> None:
    bench = await Bench().known()
    bench.push({"Message": "hot"})
    [event] = bench.taken
    assert bench.inbox.seen(ONE.root, event)
    assert not bench.inbox.seen(OTHER.root, event)


async def test_a_bmc_that_sends_too_much_is_cut_short_said_so_and_harms_no_other() -> None:
    bench = await Bench(burst=10.0, rate=1.0).known()
    taken = [bench.push({"Message": f"event {i:x}"}) for i in range(100)]
    assert sum(taken) == 10
    storm = [event for event in bench.taken if event.key == "bmc/event-storm"]
    assert [event.severity for event in storm] == ["warning"]
    assert bench.push({"Message": "hot"}, root=OTHER.root) == 1
    bench.now += 60
    assert bench.push({"Message": "later"}) == 1
    assert bench.taken[-1].severity == "ok"
    assert "90 were dropped" in bench.taken[-1].message


async def test_a_push_with_bytes_that_are_not_utf_8_is_taken() -> None:
    bench = await Bench().known()
    body = b'{"Events": [{"Message": "Xeon\xae is hot \\ud800", "Severity": "Critical"}]}'
    assert bench.inbox.receive(bench.inbox.token(ONE.root), body) == 1
    assert [event.message for event in bench.taken] == ["Xeon\ufffd is hot \ufffd"]
