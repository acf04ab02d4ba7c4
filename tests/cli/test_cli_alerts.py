"""``strata alert``, ``strata webhook`` and ``strata hardware events`` against a fake service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fake_server
import pytest
from cli_support import Run
from fake_server import Call, FakeServer, Refusal, event

Json = dict[str, Any]


def a_event(number: int, **more: Any) -> Json:
    base = {"time": 1.7e9 + number, "severity": "warning", "message": f"event {number}", "source": "push", "key": "k"}
    return {"id": number, **base, "node": f"n{number}", "bmc": "", "message_id": "", "fields": {}, **more}


def a_alert(ident: str, **more: Any) -> Json:
    base = {
        "node": "n1",
        "bmc": "",
        "key": "k",
        "severity": "critical",
        "message": "hot",
        "first": 1.7e9,
        "last": 1.7e9,
    }
    return {"id": ident, **base, "count": 3, "state": "open", "by": "", "note": "", "fields": {}, **more}


class Hardware:
    """What the fake service knows of it."""

    def __init__(self) -> None:
        self.events = [a_event(2), a_event(1)]
        self.alerts = [a_alert("a1"), a_alert("a2", state="acknowledged"), a_alert("a3", message="\x1b[2Jgone")]
        self.webhooks: dict[str, Json] = {}
        self.secrets: list[object] = []
        self.queries: list[dict[str, str]] = []

    def list_events(self, _: FakeServer, call: Call) -> Json:
        self.queries.append(call.query)
        return {"items": self.events[: int(call.query["limit"])], "next": ""}

    def list_alerts(self, _: FakeServer, call: Call) -> Json:
        self.queries.append(call.query)
        return {"items": self.alerts, "next": "", "open": 2}

    def get_alert(self, _: FakeServer, call: Call) -> Json:
        found = [alert for alert in self.alerts if alert["id"] == call.name]
        if not found:
            raise Refusal(404, "no such alert", title="Not found")
        return found[0]

    def acknowledge(self, _: FakeServer, call: Call) -> Json:
        for alert in self.alerts:
            if alert["id"] in call.body["ids"]:
                alert |= {"state": "acknowledged", "note": call.body["note"]}
        if not {alert["id"] for alert in self.alerts} >= set(call.body["ids"]):
            raise Refusal(404, "no such alert", title="Not found")
        return {"items": [alert for alert in self.alerts if alert["id"] in call.body["ids"]]}

    def list_webhooks(self, _: FakeServer, call: Call) -> Json:
        return {"items": list(self.webhooks.values())}

    def put_webhook(self, _: FakeServer, call: Call) -> Json:
        self.secrets.append(call.body.pop("secret", None))
        view = {"name": call.name, **call.body, "signed": self.secrets[-1] is not None, "delivered": 0, "failing": ""}
        self.webhooks[call.name] = view
        return view

    def delete_webhook(self, _: FakeServer, call: Call) -> tuple[int, None]:
        del self.webhooks[call.name]
        return 204, None


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> Hardware:
    found = Hardware()
    routes = [
        ("GET", "/v1/hardware/events", "select severity since limit cursor", found.list_events),
        ("GET", "/v1/alerts", "all limit cursor", found.list_alerts),
        ("GET", "/v1/alerts/([^/]+)", "", found.get_alert),
        ("POST", "/v1/alerts/acknowledge", "", found.acknowledge),
        ("GET", "/v1/webhooks", "", found.list_webhooks),
        ("PUT", "/v1/webhooks/([^/]+)", "", found.put_webhook),
        ("DELETE", "/v1/webhooks/([^/]+)", "", found.delete_webhook),
    ]
    monkeypatch.setattr(fake_server, "ROUTES", [*routes, *fake_server.ROUTES])
    return found


def test_alerts_are_listed_and_no_device_drives_the_terminal(server: FakeServer, hardware: Hardware, run: Run) -> None:
    result = run("alert", "list", "--all")
    assert result.code == 0
    assert "\x1b" not in result.out
    assert result.lines[1].split()[:4] == ["a1", "critical", "open", "n1"]
    assert hardware.queries[0]["all"] == "true"
    assert [item["id"] for item in run("alert", "list", "--match", "state=open", "--json").json] == ["a1", "a3"]


def test_alerts_are_acknowledged_by_id_or_all_that_are_open(server: FakeServer, hardware: Hardware, run: Run) -> None:
    assert run("alert", "ack", "a1", "--note", "fan ordered").lines == ["acknowledged 1 alert"]
    assert hardware.alerts[0]["note"] == "fan ordered"
    assert [item["id"] for item in run("alert", "ack", "--all", "--json").json] == ["a3"]
    assert run("alert", "ack", "nope").code == 1
    assert run("alert", "ack").code == 2
    assert run("alert", "ack", "a1", "--all").code == 2


def test_one_alert_is_shown_with_all_that_is_known_of_it(server: FakeServer, hardware: Hardware, run: Run) -> None:
    hardware.alerts[0] |= {"by": "alice", "note": "fan ordered", "fields": {"sensor": "FAN 2"}}
    shown = run("alert", "show", "a1")
    assert shown.code == 0
    lines = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in shown.lines}
    assert (lines["message"], lines["looked after by"], lines["sensor"]) == ("hot", "alice: fan ordered", "FAN 2")
    assert run("alert", "show", "a1", "--json").json["id"] == "a1"
    assert "\x1b" not in run("alert", "show", "a3").out
    assert run("alert", "show", "nope").code == 1


def test_the_address_of_a_webhook_can_come_from_standard_input(
    server: FakeServer, hardware: Hardware, run: Run
) -> None:
    assert run("webhook", "set", "pager", "-", stdin="https://x.example/hook?token=s3cret\n").code == 0
    assert hardware.webhooks["pager"]["url"] == "https://x.example/hook?token=s3cret"
    wrong = run("webhook", "set", "pager", "-", stdin="s3cret\n")
    assert (wrong.code, "s3cret" in wrong.out + wrong.err) == (2, False)


def test_a_webhook_is_set_with_a_secret_from_a_file_or_standard_input(
    server: FakeServer, hardware: Hardware, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    result = run("webhook", "set", "pager", "https://x.example/hook", "--secret-file", file, "--least", "critical")
    assert result.lines == ["alerts go to pager, from critical on, signed"]
    run("webhook", "set", "pager", "https://x.example/hook", "--secret-file", "-", stdin="other\n")
    assert "not signed" in run("webhook", "set", "open", "https://x.example/hook").out
    assert hardware.secrets == ["s3cret", "other", None]
    assert "s3cret" not in result.out + result.err + run("webhook", "list").out
    assert run("webhook", "set", "pager", "https://x.example/", "--secret-file", "-", stdin="").code == 1
    assert run("webhook", "delete", "pager", "--json").json == {"deleted": "pager"}
    assert [line.split()[0] for line in run("webhook", "list").lines[1:]] == ["open"]


def test_events_are_listed_newest_last(server: FakeServer, hardware: Hardware, run: Run) -> None:
    result = run("hardware", "events", "n[1-2]", "--severity", "warning", "--since", "@1700000000")
    assert [line.split()[-1] for line in result.lines[1:]] == ["1", "2"]
    query = hardware.queries[0]
    assert (query["select"], query["severity"], float(query["since"])) == ("n[1-2]", "warning", 1.7e9)


def test_events_are_followed_from_where_the_list_ended(server: FakeServer, hardware: Hardware, run: Run) -> None:
    calm = a_event(3, severity="ok")
    server.streams = [[event("event", calm, 3), event("event", a_event(4), 4)]]
    result = run("hardware", "events", "--follow", "--since", "1h", "--severity", "warning", "--count", "3", "--json")
    assert [json.loads(line)["id"] for line in result.lines] == [1, 2, 4]
    assert server.requests[-1][1] == "/v1/hardware/events/follow?since=2"


def test_events_that_are_gone_are_noted_and_following_goes_on(server: FakeServer, hardware: Hardware, run: Run) -> None:
    server.streams = [[event("compacted", {"oldest": 9}, 0)], [event("event", a_event(9), 9)]]
    result = run("hardware", "events", "--follow", "--count", "1")
    assert "some events are gone" in result.err
    assert result.lines[0].endswith("warning   n9  event 9")
    assert run("hardware", "events", "--follow", "--sort", "time").code == 2
