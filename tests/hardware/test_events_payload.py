"""What BMCs say becomes events: clean, bounded, and about the right thing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.hardware.bmc.protocol import EMPTY, STATE, LogEntry, Reading
from strata.hardware.events.payload import AT_ONCE, fit, from_log, from_payload, from_readings
from strata.hardware.events.site import Site, root_of, sites_of
from strata.hardware.events.words import KEY_MOST, MESSAGE_MOST, family, moment, plain, severity_of, tells_of_state

NOW = 1_700_000_000.0
ONE = Site("http://bmc", (("http://bmc", "n1"),))
TWO = Site("http://bmc", (("http://bmc/redfish/v1/Systems/A", "na"), ("http://bmc/redfish/v1/Systems/B", "nb")))


def push(*events: dict[str, Any]) -> dict[str, Any]:
    return {"@odata.type": "#Event.v1_7_0.Event", "Events": list(events)}


def test_an_event_keeps_its_registry_message_origin_arguments_and_time() -> None:
    record = {
        "MessageId": "ResourceEvent.1.0.3.ResourceErrorsDetected",
        "MessageSeverity": "Critical",
        "Message": "The resource property DIMM3 has detected errors of type ECC.",
        "MessageArgs": ["DIMM3", "ECC"],
        "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1/Memory/DIMM3"},
        "EventTimestamp": "2023-11-14T22:13:00Z",
    }
    [event] = from_payload(push(record), ONE, "push", NOW)
    assert (event.severity, event.node, event.bmc, event.source) == ("critical", "n1", "http://bmc", "push")
    assert event.key == "log/ResourceEvent.ResourceErrors/redfish/v1/Systems/1/Memory/DIMM3"
    assert event.time == 1_699_999_980.0
    assert event.fields["path"] == "/redfish/v1/Systems/1/Memory/DIMM3"
    assert event.fields["args"] == "DIMM3, ECC"


@pytest.mark.parametrize(
    ("trouble", "over"),
    [
        ("ResourceEvent.1.0.ResourceErrorsDetected", "ResourceEvent.1.4.ResourceErrorsCorrected"),
        ("ResourceEvent.1.0.ResourceErrorThresholdExceeded", "ResourceEvent.1.0.ResourceErrorThresholdCleared"),
        ("ResourceEvent.1.2.ResourceStatusChangedCritical", "ResourceEvent.1.2.ResourceStatusChangedOK"),
        ("StorageDevice.1.1.DriveFailure", "StorageDevice.1.1.DriveFailureCleared"),
        ("StorageDevice.1.1.DriveFailure", "StorageDevice.1.1.DriveOK"),
        ("StorageDevice.1.1.VolumeDegraded", "StorageDevice.1.1.VolumeOK"),
        ("Power.1.0.PowerSupplyFailed", "Power.1.0.PowerSupplyRestored"),
    ],
)
def test_a_trouble_and_its_end_have_one_key(trouble: str, over: str) -> None:
    assert family(trouble) == family(over)


def test_what_is_fine_about_something_else_does_not_share_a_key_with_a_trouble() -> None:
    assert family("ResourceEvent.1.0.ResourceErrorsDetected") != family("ResourceEvent.1.0.ResourceChanged")
    assert family("ResourceEvent.1.0.ResourcePoweredOn") != family("ResourceEvent.1.0.ResourceStatusChangedCritical")


def test_a_sensor_has_one_key_whether_it_is_pushed_logged_or_measured() -> None:
    record = {
        "MessageId": "SensorEvent.1.0.ReadingAboveUpperCriticalThreshold",
        "Severity": "Critical",
        "MessageArgs": ["CPU1 Temp", "99"],
        "OriginOfCondition": {"@odata.id": "/redfish/v1/Chassis/1/Sensors/CPU1Temp"},
    }
    [pushed] = from_payload(push(record), ONE, "push", NOW)
    entry = LogEntry(id="1", time=NOW, severity="critical", message="hot", sensor="CPU1_Temp")
    [logged] = from_log([entry], ONE, NOW)
    reading = Reading(name="CPU1 Temp", kind="temperature", unit="Cel", value=99.0, health="critical")
    [measured], _ = from_readings([reading], {}, ONE, "n1", NOW)
    assert pushed.key == logged.key == measured.key == "sensor/cpu1temp"
    assert pushed.message == "SensorEvent.1.0.ReadingAboveUpperCriticalThreshold: CPU1 Temp, 99"


def test_an_event_belongs_to_the_node_whose_system_it_is_about() -> None:
    assert TWO.node_of("/redfish/v1/Systems/B/Memory/1") == "nb"
    assert TWO.node_of("/redfish/v1/Systems/BB") == ""
    assert TWO.node_of("/redfish/v1/Chassis/1") == ""
    assert ONE.node_of("/redfish/v1/Chassis/1") == "n1"


def test_nodes_behind_one_bmc_are_one_site() -> None:
    sites = sites_of(dict(TWO.nodes) | {"ipmi://10.0.0.8": "old", "https://x/redfish/v1": "x"})
    assert set(sites) == {"http://bmc", "ipmi://10.0.0.8", "https://x"}
    assert sites["http://bmc"] == TWO
    assert root_of("http://h/bmc/n7/redfish/v1/Systems/1") == "http://h/bmc/n7"


def test_hostile_text_is_one_short_line_without_controls() -> None:
    text = "fan\x1b[2Jfailed\r\n\u202eevil" + "x" * 10_000
    [event] = from_payload(push({"Message": text, "MessageId": "A.B\x00" * 100}), ONE, "push", NOW)
    assert len(event.message) == MESSAGE_MOST
    assert event.message.startswith("fan [2Jfailed evil")
    assert len(event.key) <= KEY_MOST
    assert len(event.message_id) <= 120


def test_events_of_others_are_made_fit_too_and_those_that_are_fit_are_left_alone() -> None:
    [event] = from_payload(push({"Message": "hot"}), ONE, "push", NOW)
    assert fit(event) is event
    odd = msgspec.structs.replace(event, message="Oops:\n\x1b[31m" + "x" * 1000, key="k" * 1000, fields={"a": "\x00b"})
    found = fit(odd)
    assert (found.message[:9], len(found.message), len(found.key), found.fields) == (
        "Oops: [31",
        MESSAGE_MOST,
        KEY_MOST,
        {"a": "b"},
    )


def test_messages_that_differ_in_numbers_only_are_about_one_trouble() -> None:
    first, second = (
        from_payload(push({"Message": f"ECC error at 0x7f{i:04x}, count {i}"}), ONE, "push", NOW)[0] for i in (1, 20)
    )
    assert first.key == second.key == "log/ECC error at #, count #"


def test_a_severity_that_nobody_knows_is_a_warning() -> None:
    assert severity_of("Peculiar") == "warning"
    assert severity_of(None, "OK") == "ok"
    assert severity_of(7, "Fatal") == "critical"


def test_a_clock_that_is_off_is_not_believed_but_told() -> None:
    assert moment("1970-01-01T00:00:10Z", NOW) == (NOW, "10")
    assert moment("2023-11-14T22:13:00", NOW) == (NOW - 20, "")  # no zone: UTC
    assert moment("soon", NOW) == (NOW, "soon")
    assert moment("2023-11-14T22:15:20Z", NOW) == (NOW, "")  # two minutes ahead


@pytest.mark.parametrize("payload", [[], "x", {}, {"Events": {}}, {"Events": [1]}, {"Events": [{}, None]}])
def test_what_is_no_event_is_a_bad_request(payload: object) -> None:
    with pytest.raises(BadRequest):
        from_payload(payload, ONE, "push", NOW)


def test_a_metric_report_is_no_event_and_no_mistake() -> None:
    assert from_payload({"@odata.type": "#MetricReport.v1_3_0.MetricReport"}, ONE, "push", NOW) == []


def test_a_flood_in_one_payload_is_cut_and_counted() -> None:
    events = from_payload(push(*({"Message": "x"} for _ in range(1000))), ONE, "push", NOW)
    assert len(events) == AT_ONCE + 1
    assert events[-1].message.startswith(f"{1000 - AT_ONCE} more events")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("@odata.id"), inner, max_size=1),
    max_leaves=4,
)
FIELDS = ("MessageId", "Message", "Severity", "MessageArgs", "OriginOfCondition", "EventTimestamp", "EventId")


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=5))
def test_no_event_can_make_us_stumble(records: list[dict[str, Any]]) -> None:
    for event in from_payload(push(*records), TWO, "sse", NOW):
        assert event.message
        assert event.key
        assert plain(event.message) == event.message
        event.message.encode()


def test_a_sensor_tells_when_it_gets_worse_and_when_it_is_well_again() -> None:
    def read(value: float | None, **more: Any) -> Reading:
        return Reading(name="CPU1 Temp", kind="temperature", unit="Cel", value=value, high=95.0, **more)

    events, unwell = from_readings([read(50.0)], {}, ONE, "n1", NOW)
    assert (events, unwell) == ([], {})
    [hot], unwell = from_readings([read(97.0)], unwell, ONE, "n1", NOW)
    assert (hot.severity, hot.message) == ("critical", "CPU1 Temp is critical: 97 Cel (critical at 95)")
    events, unwell = from_readings([read(None, doubt="absent")], unwell, ONE, "n1", NOW)
    assert (events, unwell) == ([], {"sensor/cpu1temp": "critical"})  # not read: neither worse nor well
    events, unwell = from_readings([read(98.0)], unwell, ONE, "n1", NOW)
    assert events == []
    [well], unwell = from_readings([read(60.0)], unwell, ONE, "n1", NOW)
    assert (well.severity, well.message, unwell) == ("ok", "CPU1 Temp is well again: 60 Cel", {})


def test_two_sensors_of_one_name_are_as_bad_as_the_worse() -> None:
    readings = [
        Reading(name="Fan 1", kind="fan", unit="RPM", value=1.0, health=health)  # type: ignore[arg-type]
        for health in ("ok", "critical", "ok")
    ]
    [event], unwell = from_readings(readings, {}, ONE, "n1", NOW)
    assert (event.severity, unwell) == ("critical", {"sensor/fan1": "critical"})
    assert from_readings(readings, unwell, ONE, "n1", NOW)[0] == []


@pytest.mark.parametrize(
    "message_id", ["ResourceEvent.1.0.ResourcePoweredOff", "X.1.PowerStateChanged", "O.1.HostReset"]
)
def test_a_change_of_power_is_worth_a_look(message_id: str) -> None:
    assert tells_of_state(message_id)
    assert not tells_of_state("ResourceEvent.1.0.ResourceErrorsDetected")


def test_what_was_taken_out_is_no_trouble_any_more() -> None:
    failed = Reading(name="PSU (2)", kind="power", unit="W", value=None, health="critical", doubt=STATE)
    out = Reading(name="PSU (2)", kind="power", unit="W", value=None, doubt=EMPTY)
    _, unwell = from_readings([failed], {}, ONE, "n1", NOW)
    assert unwell
    [event], unwell = from_readings([out], unwell, ONE, "n1", NOW)
    assert (event.severity, unwell) == ("ok", {})


SYSTEM = "/redfish/v1/Systems/A"


def switched(message_id: str, path: str = SYSTEM, *args: str, **more: Any) -> dict[str, Any]:
    stamp = {"EventTimestamp": "2023-11-14T22:13:19Z"}
    origin = {"OriginOfCondition": {"@odata.id": path}, "MessageArgs": list(args)}
    return {"MessageId": message_id, "Message": "m", **origin, **stamp, **more}


@pytest.mark.parametrize(
    ("record", "power"),
    [
        (switched("ResourceEvent.1.3.ResourcePoweredOn"), "on"),
        (switched("ResourceEvent.1.0.3.ResourcePoweredOff", SYSTEM, SYSTEM), "off"),
        (switched("iLOEvents.2.1.ServerPoweredOff", f"{SYSTEM}/"), "off"),
        (switched("OpenBMC.0.1.DCPowerOn"), "on"),
        (switched("CrayAlerts.1.0.ResourcePowerStateChanged", SYSTEM, SYSTEM, "Off"), "off"),
        (switched("ResourceEvent.1.3.ResourcePoweringOff"), ""),
        (switched("IDRAC.2.8.SYS1001"), ""),
        (switched("ResourceEvent.1.0.ResourcePowerStateChanged"), ""),
        (switched("CrayAlerts.1.0.ResourcePowerStateChanged", SYSTEM, "On", "Off"), ""),
        (switched("Contoso.1.0.ResourcePoweredOn"), ""),
        (switched("ResourceEvent.1.3.ResourcePoweredOff", f"{SYSTEM}/Processors/0"), ""),
        (switched("ResourceEvent.1.3.ResourcePoweredOff", "/redfish/v1/Chassis/1"), ""),
        (switched("ResourceEvent.1.3.ResourcePoweredOff", EventTimestamp=""), ""),
        (switched("ResourceEvent.1.3.ResourcePoweredOff", EventTimestamp="1970-01-01T00:00:07Z"), ""),
    ],
)
def test_an_event_says_what_power_is_only_where_that_node_and_time_are_clear(
    record: dict[str, Any], power: str
) -> None:
    [event] = from_payload(push(record), TWO, "push", NOW)
    assert event.fields.get("power", "") == power


def test_of_a_bmc_with_one_node_any_system_is_that_node_and_a_part_of_it_is_not() -> None:
    other = Site("http://bmc", (("http://bmc/redfish/v1/Chassis/E", "rack"),))
    assert ONE.node_itself("/redfish/v1/Systems/1") == "n1"
    assert ONE.node_itself("/redfish/v1/Systems/1/Processors/0") == ONE.node_itself("/redfish/v1/Systems") == ""
    assert TWO.node_itself("/redfish/v1/Systems/B/") == "nb"
    assert TWO.node_itself("/redfish/v1/Systems/C") == ""
    assert (other.node_itself("/redfish/v1/Chassis/E"), other.node_itself("/redfish/v1/Systems/1")) == ("rack", "")
