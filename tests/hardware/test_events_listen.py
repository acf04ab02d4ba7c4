"""How a BMC is made to tell: push where it can, else a stream, else not at all; and nobody else's business."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from strata.core.errors import DeviceError, NotOffered, OutcomeUnknown
from strata.hardware.bmc.redfish.events import CONTEXT, REPORTS
from strata.hardware.events.inbox import Inbox
from strata.hardware.events.listen import DESTINATION, Listener
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.site import Site

SITE = Site("http://b1", (("http://b1", "n1"),))


class FakeService:
    """The event service of one BMC."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, tuple[str, str]] = {}
        self.payloads: list[Mapping[str, object]] = []
        self.push_error: Exception | None = None
        self.report_error: Exception | None = NotOffered("no reports")
        self.lost_reply = False
        self.stream_error: Exception = NotOffered("no stream")
        self.asked = 0
        self._count = 0

    async def subscribe(self, address: str, destination: str, context: str) -> str:
        if context == REPORTS and self.report_error:
            raise self.report_error
        self._count += 1
        self.subscriptions[f"/s/{self._count}"] = (destination, context)
        if self.lost_reply:
            self.lost_reply = False
            raise OutcomeUnknown("no answer")
        return f"/s/{self._count}"

    async def unsubscribe(self, address: str, path: str) -> None:
        del self.subscriptions[path]

    async def listening(self, address: str) -> Sequence[tuple[str, str, str]]:
        self.asked += 1
        if self.push_error:
            raise self.push_error
        return [(path, *found) for path, found in self.subscriptions.items()]

    async def stream(self, address: str) -> AsyncIterator[Mapping[str, object]]:
        for payload in self.payloads:
            yield payload
        raise self.stream_error


class Bench:
    """A listener over a fake service."""

    def __init__(self, public_url: str = "https://strata.example:8443") -> None:
        self.events: list[HardwareEvent] = []
        self.service = FakeService()
        self.inbox = Inbox(b"k" * 32, self.events.extend)
        self.listener = Listener(self.service, self.inbox, public_url=public_url)
        self.destination = f"{public_url}{DESTINATION}{self.inbox.token(SITE.root)}"

    async def broken_off(self) -> None:
        """Until the stream has ended."""
        while self.listener.way(SITE.root) == "sse":  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_subscription_of_ours_is_kept_doubles_and_old_ones_go_and_others_stay() -> None:
    bench = Bench()
    bench.service.subscriptions = {
        "/a": (bench.destination, CONTEXT),
        "/b": (bench.destination, CONTEXT),
        "/c": ("https://elsewhere.example/", CONTEXT),
        "/d": (bench.destination, "somebody else"),
    }
    assert await bench.listener.arrange(SITE) == "push"
    assert set(bench.service.subscriptions) == {"/a", "/d"}
    await bench.listener.leave(SITE)
    assert set(bench.service.subscriptions) == {"/d"}
    assert bench.listener.way(SITE.root) == "poll"


async def test_metric_reports_are_subscribed_to_where_they_are_offered_and_trouble_with_them_is_only_theirs() -> None:
    bench = Bench()
    bench.service.report_error = DeviceError("500")
    assert await bench.listener.arrange(SITE) == "push"
    assert list(bench.service.subscriptions.values()) == [(bench.destination, CONTEXT)]
    bench.service.report_error = None
    for _ in range(2):
        assert await bench.listener.arrange(SITE) == "push"
    both = [(bench.destination, CONTEXT), (bench.destination, REPORTS)]
    assert sorted(bench.service.subscriptions.values()) == both
    await bench.listener.leave(SITE)
    assert not bench.service.subscriptions


async def test_a_subscription_whose_reply_was_lost_is_found_and_not_made_twice() -> None:
    bench = Bench()
    bench.service.lost_reply = True
    assert await bench.listener.arrange(SITE) == "poll"
    assert await bench.listener.arrange(SITE) == "push"
    assert list(bench.service.subscriptions.values()) == [(bench.destination, CONTEXT)]


async def test_without_an_event_service_its_stream_is_read_and_without_that_it_is_polled() -> None:
    bench = Bench()
    bench.service.push_error = NotOffered("no event service")
    bench.service.payloads = [{"nonsense": 1}, {"Events": [{"Message": "hot", "Severity": "Warning"}]}]
    assert await bench.listener.arrange(SITE) == "sse"
    await bench.broken_off()
    assert [(event.source, event.message) for event in bench.events] == [("sse", "hot")]
    assert await bench.listener.arrange(SITE) == "poll"
    assert bench.service.asked == 1  # what is not offered is not asked for again


async def test_a_stream_that_breaks_is_taken_up_at_the_next_look() -> None:
    bench = Bench(public_url="")
    bench.service.stream_error = DeviceError("broke off")
    for _ in range(3):
        assert await bench.listener.arrange(SITE) == "sse"
        await bench.broken_off()
    await bench.listener.stop()


async def test_trouble_with_the_event_service_is_told_and_ends_the_belief_that_it_pushes() -> None:
    bench = Bench()
    assert await bench.listener.arrange(SITE) == "push"
    bench.service.push_error = DeviceError("500")
    with pytest.raises(DeviceError):
        await bench.listener.arrange(SITE)
    assert bench.listener.way(SITE.root) == "poll"


async def test_ipmi_bmcs_are_polled() -> None:
    bench = Bench()
    assert await bench.listener.arrange(Site("ipmi://10.0.0.8", (("ipmi://10.0.0.8", "n2"),))) == "poll"
    assert bench.service.asked == 0


async def test_a_fault_of_ours_with_one_stream_is_logged_and_the_stream_is_begun_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(public_url="")
    bench.service.stream_error = UnicodeDecodeError("utf-8", b"\xae", 0, 1, "invalid start byte")
    assert await bench.listener.arrange(SITE) == "sse"
    await bench.broken_off()
    assert [record.message for record in caplog.records] == ["an internal error in the work for one node"]
    assert await bench.listener.arrange(SITE) == "sse"
    await bench.listener.stop()
