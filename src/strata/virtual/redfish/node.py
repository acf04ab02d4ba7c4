"""The BMC of one simulated node: what it remembers besides the node itself, and the ways in for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from strata.core.errors import BadRequest
from strata.core.state import Outcome
from strata.virtual.bmc.console import Console
from strata.virtual.bmc.http import Manner, Reply, Request
from strata.virtual.fleet.model import ON, REASONS, UP
from strata.virtual.fleet.names import GPUS, has_gpus, location_of
from strata.virtual.meters import KWH
from strata.virtual.redfish import hardware, power, sensors, server, update
from strata.virtual.redfish.bmc import FENCED, Account
from strata.virtual.redfish.body import ROOT, Json, done, encode, error, etag, slot
from strata.virtual.redfish.hardware import CORES, CPUS, DIMM_MIB, DIMMS
from strata.virtual.redfish.router import Router
from strata.virtual.redfish.sensors import SENSORS, Sensor
from strata.virtual.redfish.server import SYSTEM, ServerBmc
from strata.virtual.redfish.site import Site
from strata.virtual.redfish.update import Updates

REPORT_EVERY = 5.0
"""Seconds between the metric reports that a BMC sends by itself."""
SEVERITIES = {"ok": "OK", "warning": "Warning", "critical": "Critical"}

FLAVOURS = (
    ("On", "ForceOff", "GracefulShutdown", "ForceRestart", "GracefulRestart", "PowerCycle", "Nmi"),
    ("On", "ForceOff", "PowerCycle"),
    ("ForceOn", "GracefulShutdown", "ForceOff", "ForceRestart", "Nmi"),
)
"""What makes of BMCs allow; a node's make is its index modulo these."""
RESETS = {"On": "power-on", "ForceOn": "power-on", "ForceOff": "power-off", "GracefulShutdown": "power-off"}
"""Those that are mutations; the others restart a node that is on."""


class NodeBmc(ServerBmc):
    """The BMC of a simulated node."""

    router: ClassVar[Router] = Router(*server.COMMON, hardware.TREE, power.TREE, sensors.TREE, update.TREE)
    services = (
        "AccountService", "Chassis", "EventService", "Managers", "SessionService", "Systems", "Tasks",
        "TelemetryService", "UpdateService",
    )  # fmt: skip
    settable: ClassVar[Mapping[str, tuple[type, ...]]] = {**ServerBmc.settable, "IndicatorLED": (str,)}
    below_system = ("Bios", "Processors", "Memory", "Storage", "EthernetInterfaces", "LogServices", "VirtualMedia")
    below_chassis = (
        "Controls", "EnvironmentMetrics", "NetworkAdapters", "Power", "PowerSubsystem", "Sensors", "Thermal",
        "ThermalSubsystem",
    )  # fmt: skip
    drives: ClassVar[Mapping[str, Sequence[str]]] = {**ServerBmc.drives, "USB1": ["USBStick"]}

    def __init__(self, site: Site, node: int, account: Account, clock: Callable[[], float]) -> None:
        super().__init__(site, site.nodes.names[node], account, node, clock)
        self.node = node
        self.idx = np.array([node], dtype=np.int64)
        self.allowed = FLAVOURS[node % len(FLAVOURS)]
        self.gpus: int = GPUS if has_gpus(node, site.nodes.count) else 0
        self._report_at = float("-inf")
        self.resets: list[str] = []
        """Every ResetType that the BMC accepted, in order."""
        self.boots: list[str] = []
        """What every start was told to boot from."""
        self.boot["HttpBootUri"] = None
        self.bios: dict[str, object] = {}
        """Settings that were changed, and those that wait for the next start."""
        self.staged: dict[str, object] = {}
        self.readings: dict[str, float] = {}
        """Sensor → what it shows, where a test says so."""
        self._console: Console | None = None
        self._updates: Updates | None = None
        self._noticed = (-1, -1)
        self._measured = (-1, 0.0)
        self._whole: tuple[tuple[int, int], bytes, str] | None = None

    # -- what it remembers; made when first asked for

    @property
    def console(self) -> Console:
        if self._console is None:
            self._console = Console()
        return self._console

    @property
    def updates(self) -> Updates:
        """Firmware and the work on it."""
        if self._updates is None:
            self._updates = Updates(60.0 * self.site.nodes.timing.scale, self.gpus)
        return self._updates

    # -- the ways in for tests

    def set_mac(self, port: str, mac: str) -> None:
        """Give a port (``NIC1/1``) this MAC address, whoever else has it."""
        self.site.macs[self.node, port] = mac

    def log(self, severity: str, message: str, message_id: str = "", *, sensor: str = "") -> str:
        """Write an entry into the system event log and tell those who listen. The id of the entry."""
        if severity not in SEVERITIES:
            raise BadRequest(f"one of {', '.join(SEVERITIES)}", where=severity)
        return self.write_log(SEVERITIES[severity], message, message_id or "OEM.1.0.Text", sensor=sensor)

    def print(self, text: str) -> None:
        """Print it on the serial console."""
        self.console.write(text.replace("\n", "\r\n").encode())

    def set_reading(self, sensor: str, value: float) -> None:
        """From now on the sensor shows this; crossing a threshold is an event."""
        found = SENSORS.get(sensor)
        if found is None:
            raise BadRequest(f"sensors are {', '.join(SENSORS)}", where=sensor)
        before = self.health(sensor)
        self.readings[sensor] = value
        self.revision += 1
        after = self.health(sensor)
        if after != before:
            self._crossed(found, value, after)

    def _crossed(self, sensor: Sensor, value: float, health: str) -> None:
        said = f"{value:g} {sensor.units}"
        if health == "OK":
            text, kind = f"Sensor {sensor.name} reading of {said} is within normal range.", "SensorReadingNormalRange"
        else:
            above = sensor.high is not None and value >= sensor.high
            side, kind = ("above the upper", "AboveUpper") if above else ("below the lower", "BelowLower")
            text, kind = (
                f"Sensor {sensor.name} reading of {said} is {side} critical threshold.",
                f"Reading{kind}Critical",
            )
        origin = f"{ROOT}/Chassis/1/Sensors/{sensor.id}"
        arguments = (sensor.name, f"{value:g}", sensor.units)
        self.events.tell(self.clock(), health, text, f"SensorEvent.1.0.{kind}", origin, arguments=arguments)

    # -- what the tables ask

    def power(self, now: float) -> str | None:
        return (None, "Off", "On")[self._power_code(now)]

    def watts(self, now: float) -> float:
        """What the node draws; measured once a request, for all the sensors that depend on it."""
        if self._measured[0] != self.requests:
            self._measured = self.requests, round(float(self.site.nodes.watts(self.idx, now)[0]), 1)
        return self._measured[1]

    def energy(self, now: float) -> float:
        """Kilowatt hours, as its counter shows them."""
        return round(float(self.site.nodes.counters(self.idx, now)[0]) / KWH, 6)

    def gpu_watts(self, gpu: int, now: float) -> float:
        """What one of its accelerators draws."""
        return round(float(self.site.nodes.gpu_watts(self.idx, now)[0, gpu]), 1)

    def reading(self, sensor: str, now: float) -> float:
        found = self.readings.get(sensor)
        return SENSORS[sensor].reading(self, now) if found is None else found

    def health(self, sensor: str) -> str:
        """What a sensor's reading means; only one that a test has set can be bad."""
        value = self.readings.get(sensor)
        found = SENSORS[sensor]
        if value is None:
            return "OK"
        high, low = found.high, found.low
        return "Critical" if (high is not None and value >= high) or (low is not None and value <= low) else "OK"

    def firmware(self, now: float) -> str:
        return self.updates.versions(now)["BMC"]

    @property
    def cap(self) -> float | None:
        """Watts that the node may draw; None: as much as it likes."""
        found = float(self.site.nodes.electricity.caps[self.node])
        return None if found == float("inf") else found

    def gpu_cap(self, gpu: int) -> float | None:
        """Watts that one of its accelerators may draw; None: as much as it likes."""
        found = float(self.site.nodes.electricity.gpu_caps[self.node - self.site.nodes.electricity.first_gpu, gpu])
        return None if found == float("inf") else found

    def facts(self, now: float) -> Json:
        """What only simulated nodes have of a system."""
        model = self.part("ARM" if self.gpus else "CPU", "Processors/CPU1")["Model"]
        return {
            "SystemType": "Physical",
            "BiosVersion": self.updates.versions(now)["BIOS"],
            "IndicatorLED": "Blinking" if self.light else "Off",
            "ProcessorSummary": {"Count": CPUS, "Model": model, "CoreCount": CPUS * CORES},
            "MemorySummary": {"TotalSystemMemoryGiB": DIMMS * DIMM_MIB // 1024},
        }

    def housing(self) -> Json:
        """The sled that the node is."""
        place = location_of(self.node)
        location = {"PartLocationContext": place, **slot("Slot", place)}
        return {"ChassisType": "Sled", "LocationIndicatorActive": self.light, "Location": location}

    # -- what happens

    def reset(self, kind: str, fence: tuple[int, int] | None, now: float) -> Reply:
        """Switch the node, unless the fence is old."""
        nodes = self.site.nodes
        epochs = np.array([fence[0]], dtype=np.int64) if fence else None
        generation = fence[1] if fence else 0
        before = len(nodes.effects)
        if kind in RESETS:
            acted = nodes.act(RESETS[kind], self.idx, now=now, epochs=epochs, generation=generation)
            taken = len(nodes.effects) > before
        else:
            cycle = kind == "PowerCycle"
            acted = nodes.restart(self.idx, now=now, cycle=cycle, epochs=epochs, generation=generation)
            taken = acted.codes[0] == Outcome.DONE
        outcome = Outcome(int(acted.codes[0]))
        if outcome is Outcome.FENCED:
            return FENCED
        if outcome is Outcome.FAILED:
            return error(500, "InternalError", f"The request failed: {REASONS[acted.why[0]]}.")
        if taken:
            self.resets.append(kind)
            self._was_reset(kind, now)
        return Reply(204, manner=Manner.CLOSED) if outcome is Outcome.UNKNOWN else done()

    @property
    def attended(self) -> bool:
        """Whether anybody wants to know at once what happens to the node."""
        return (self._events is not None and self._events.heard) or (
            self._console is not None and self._console.watched
        )

    def attend(self, now: float) -> None:
        self.site.attended.add(self.node)
        if self._noticed == (-1, -1):
            self._noticed = self._truth(now)

    def report(self, now: float) -> None:
        """Send those who want it a report of what the node draws, if it is time for the next."""
        if self._events is not None and self._events.reported and now >= self._report_at:
            self._report_at = now + REPORT_EVERY
            self._events.report(power.power_report(self, now))

    def _was_reset(self, kind: str, now: float) -> None:
        """The node took a reset: what waited for that takes effect."""
        if kind == "Nmi":
            self.print("[   99.000000] NMI received\n[   99.000001] Kernel panic - not syncing: NMI: Not continuing\n")
        if kind not in ("ForceOff", "GracefulShutdown"):
            self.boots.append(str(self.boot["BootSourceOverrideTarget"]))
            self.boot_taken()
            self.bios |= self.staged
            self.staged = {}
            self.updates.node_started(now)
        if self.attended:
            self.notice(now)

    def notice(self, now: float, after: tuple[int, int] | None = None) -> None:
        """Tell those who listen what became of the node (its codes of power and OS) since the last time."""
        before, after = self._noticed, after or self._truth(now)
        if after == before:
            return
        self._noticed = after
        if before[0] != after[0]:
            on = after[0] == ON
            self.events.tell(now, "OK", *server.powered(on), SYSTEM, arguments=(SYSTEM,))
            if on:
                self.print(f"\n{self.name}: power-on self-test: {8 * 64} GiB, 2 processors: passed\nBooting...\n")
        if before[1] != after[1] and after[1] == UP:
            self.print(f"[    0.000000] Linux version 6.1.0-simulated\n[    9.210000] {self.name} login: \n")

    def _truth(self, now: float) -> tuple[int, int]:
        nodes = self.site.nodes
        return int(nodes.truth("power", self.idx, now).codes[0]), int(nodes.truth("os", self.idx, now).codes[0])

    def _power_code(self, now: float) -> int:
        return int(self.site.nodes.observe("power", self.idx, now).codes[0])

    def _quick(self, request: Request, path: str, now: float) -> Reply | None:
        """The system is asked for far more often than anything else, and seldom changes."""
        if path != SYSTEM or self.updates.tasks:  # what a task does to the firmware shows in the system
            return None
        state = self._power_code(now), self.revision
        if self._whole is None or self._whole[0] != state:
            encoded = encode(self._view(SYSTEM, request, now))
            self._whole = state, encoded, etag(encoded)
        return self._tagged(request, self._whole[1], self._whole[2])
