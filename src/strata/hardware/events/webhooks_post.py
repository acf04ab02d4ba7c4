"""Delivery of alerts to one address: in batches, signed, again and again until it is taken; never in anybody's way.

At least once: how far it got is kept (``EventLog`` marks), and whoever starts anew is given what changed since. What
waits is one entry for each alert (its newest state), bounded: the oldest go first, and every delivery says how many.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import random
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

import aiohttp
import msgspec

from strata.core.errors import StrataError
from strata.hardware.events.alerts_record import Alert

log = logging.getLogger(__name__)

SIGNATURE = "X-Strata-Signature"
DELIVERY = "X-Strata-Delivery"


class PostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How hard is tried. Times in seconds."""

    timeout: float = 10.0
    """For one delivery, all in all."""
    again_after: float = 1.0
    """After a failure; doubles up to ``again_most``."""
    again_most: float = 300.0
    batch: int = 100
    """Alerts in one delivery."""
    waiting: int = 10_000
    """Alerts that wait for one receiver."""
    gather: float = 0.05
    """What happens within so long goes together."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as a receiver gets it."""

    id: str
    node: str
    bmc: str
    key: str
    severity: str
    message: str
    message_id: str
    state: str
    """``open`` or ``over``."""
    first: float
    last: float
    count: int
    fields: dict[str, str]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The body of one delivery. ``sent`` is signed with the rest: an old one that is sent again gives itself away."""

    id: str
    sent: float
    controller: str
    webhook: str
    alerts: tuple[Told, ...]
    dropped: int
    """Alerts that could not wait any longer since the last delivery that was taken."""


class Post:
    """One receiver. ``url`` and ``secret`` open what is sealed each time that it is needed: neither is kept open."""

    def __init__(
        self,
        name: str,
        url: Callable[[], str],
        http: aiohttp.ClientSession,
        *,
        controller: str,
        secret: Callable[[], bytes] | None,
        delivered: Callable[[float], None],
        settings: PostSettings,
        clock: Callable[[], float],
    ) -> None:
        self.delivered = 0
        self.dropped = 0
        self.failing = ""
        """Why the last delivery was not taken; empty: it was."""
        self._name = name
        self._url = url
        self._http = http
        self._controller = controller
        self._secret = secret
        self._mark = delivered
        self._settings = settings
        self._clock = clock
        self._waiting: OrderedDict[str, Alert] = OrderedDict()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._deliver(), name=f"webhook {name}")

    @property
    def waiting(self) -> Sequence[Alert]:
        """What was not delivered yet."""
        return list(self._waiting.values())

    async def stop(self) -> None:
        """Deliver nothing more."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def tell(self, alerts: Sequence[Alert]) -> None:
        """Have these delivered."""
        for alert in alerts:
            self._waiting.pop(alert.id, None)
            self._waiting[alert.id] = alert
        while len(self._waiting) > self._settings.waiting:
            self._waiting.popitem(last=False)
            self.dropped += 1
        self._wake.set()

    async def _deliver(self) -> None:
        failures = 0
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                await asyncio.sleep(self._settings.gather)
            batch = [alert for alert, _ in zip(self._waiting.values(), range(self._settings.batch), strict=False)]
            dropped = self.dropped
            self.failing = await self._post(batch, dropped)
            if self.failing:
                failures += 1
                log.warning("webhook not delivered", extra={"webhook": self._name, "reason": self.failing})
                pause = min(self._settings.again_after * 2 ** min(failures - 1, 16), self._settings.again_most)
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))
                continue
            failures = 0
            self.delivered += len(batch)
            self.dropped -= dropped
            for alert in batch:
                if self._waiting.get(alert.id) is alert:
                    del self._waiting[alert.id]
            # Everything older was delivered before, or dropped and counted.
            self._mark(max(alert.changed for alert in batch))

    async def _post(self, batch: Sequence[Alert], dropped: int) -> str:
        """Why it was not taken; empty: it was."""
        delivery = Delivery(
            id=secrets.token_hex(8),
            sent=self._clock(),
            controller=self._controller,
            webhook=self._name,
            alerts=tuple(map(_told, batch)),
            dropped=dropped,
        )
        body = msgspec.json.encode(delivery)
        headers = {"Content-Type": "application/json", "User-Agent": "strata", DELIVERY: delivery.id}
        try:
            if self._secret is not None:
                headers[SIGNATURE] = "sha256=" + hmac.new(self._secret(), body, hashlib.sha256).hexdigest()
            limit = aiohttp.ClientTimeout(total=self._settings.timeout)
            async with self._http.post(
                self._url(), data=body, headers=headers, allow_redirects=False, timeout=limit
            ) as reply:
                status = reply.status
        except StrataError as error:
            return str(error)
        except TimeoutError:
            return f"no answer in {self._settings.timeout:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The text of these may hold the URL, and with it a secret.
            return f"cannot be reached ({type(error).__name__})"
        if 200 <= status < 300:
            return ""
        return "it redirects elsewhere, which is not followed" if 300 <= status < 400 else f"it answered {status}"


def _told(alert: Alert) -> Told:
    return Told(
        id=alert.id,
        node=alert.node,
        bmc=alert.bmc,
        key=alert.key,
        severity=alert.severity,
        message=alert.message,
        message_id=alert.message_id,
        state="over" if alert.over else "open",
        first=alert.first,
        last=alert.last,
        count=alert.count,
        fields=dict(alert.fields),
    )
