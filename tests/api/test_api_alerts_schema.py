"""The routes of events, alerts and webhooks are as the OpenAPI document says, whatever is asked of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import schemathesis
from api_support import Service
from schema_checks import ask_and_check, examples, schema_of

from strata.control import machine_views as m
from strata.control.machine import Machine
from strata.control.principal import Principal
from strata.core.errors import BadRequest, Denied, NotFound

EVENT = m.EventView(
    id=1, time=1.0, severity="ok", message="m", source="poll", key="k", node="n1", bmc="", message_id="", fields={}
)
ALERT = m.AlertView(
    id="a", node="n1", bmc="", key="k", severity="critical", message="hot", first=1.0, last=2.0, count=3, state="open",
    by="", note="", fields={"sensor": "CPU"},
)  # fmt: skip


class FakeAlerts:
    """One event, one alert, and the webhooks that were set."""

    def __init__(self) -> None:
        self.hooks: dict[str, m.WebhookView] = {}

    async def events(
        self, who: Principal, select: str, severity: str, since: float | None, limit: int, after: str
    ) -> m.EventPage:
        if select not in ("*", "n1"):
            raise NotFound("no such node")
        return m.EventPage(items=(EVENT,), next="7")

    async def follow(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[m.EventView]]:
        if select not in ("*", "n1"):
            raise NotFound("no such node")

        async def one() -> AsyncIterator[Sequence[m.EventView]]:
            yield [EVENT]

        return one()

    async def alerts(self, who: Principal, *, all_: bool, limit: int, after: str) -> m.AlertPage:
        return m.AlertPage(items=(ALERT,), next="", open=1)

    async def acknowledge(self, who: Principal, ids: Sequence[str], note: str) -> Sequence[m.AlertView]:
        if set(ids) != {"a"}:
            raise NotFound("no such alert")
        return [ALERT]

    async def webhooks(self, who: Principal) -> Sequence[m.WebhookView]:
        return list(self.hooks.values())

    async def put_webhook(self, who: Principal, name: str, spec: m.WebhookSpec) -> m.WebhookView:
        view = m.WebhookView(
            name=name, url=spec.url, least=spec.least, signed=spec.secret is not None, delivered=0, failing=""
        )
        return self.hooks.setdefault(name, view)

    async def delete_webhook(self, who: Principal, name: str) -> None:
        if self.hooks.pop(name, None) is None:
            raise NotFound("no such webhook")

    async def receive(self, token: str, body: bytes) -> None:
        if not token.endswith(".0"):
            raise Denied("not one of ours")
        raise BadRequest("not JSON")


SERVICE = Service(nodes=1)
SERVICE.services.machine = Machine(**dict.fromkeys(Machine.__struct_fields__) | {"alerts": FakeAlerts()})  # type: ignore[arg-type]
SCHEMA = schema_of(SERVICE.app()).include(path_regex="^/v1/(alerts|webhooks|hardware/events)")


@pytest.mark.slow
@SCHEMA.parametrize()
@examples(15)
def test_no_request_gets_a_server_error_or_an_undocumented_answer(case: schemathesis.Case) -> None:
    ask_and_check(case)
