"""The power of a whole simulated fleet in one request: what its BMCs would tell one by one. Both sides of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aiohttp
import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import DeviceError
from strata.virtual.fleet.names import GPUS
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.redfish.bmc import Account
from strata.virtual.redfish.hardware import SUPPLIES, SUPPLY_WATTS
from strata.virtual.redfish.power import GPU_LEAST, GPU_MOST, LEAST, MOST

Floats = npt.NDArray[np.float64]

HOTTEST, HEAT = 31.0, 0.05
"""The hottest sensor of a node (``sensors``: that of its second processor): at no watts, and more for each."""


class FleetReadings(msgspec.Struct, frozen=True):
    """On the wire: each column is 64-bit little-endian floats, one per name; NaN where a BMC is silent, or has
    no such thing."""

    names: Sequence[str]
    columns: Mapping[str, bytes]


def encode(nodes: SimNodes, now: float) -> bytes:
    """What ``GET /fleet/power`` answers."""
    everybody = nodes.all
    watts = np.round(nodes.watts(everybody, now), 1)
    silent = nodes.silent(everybody, now)
    accelerated = np.where(nodes.all >= nodes.electricity.first_gpu, float(GPUS), np.nan)
    gpu_caps = accelerated * 0.0
    gpu_caps[nodes.electricity.first_gpu :] = np.where(
        np.isfinite(nodes.electricity.gpu_caps), nodes.electricity.gpu_caps, 0.0
    ).sum(axis=1)
    columns = {
        "power": watts,
        "energy": np.round(nodes.counters(everybody, now), 1),
        "temperature": np.round(HOTTEST + HEAT * watts, 1),
        "cap": np.where(np.isfinite(nodes.electricity.caps), nodes.electricity.caps, 0.0),
        "least": np.full(nodes.count, float(LEAST)),
        "most": np.full(nodes.count, float(MOST)),
        "supply": np.full(nodes.count, float(SUPPLIES * SUPPLY_WATTS)),
        "accel-power": np.round(nodes.gpu_watts(everybody, now), 1).sum(axis=1),
        "accel-cap": gpu_caps,
        "accel-least": accelerated * GPU_LEAST,
        "accel-most": accelerated * GPU_MOST,
    }
    packed = {name: np.where(silent, np.nan, column).astype("<f8").tobytes() for name, column in columns.items()}
    return msgspec.msgpack.encode(FleetReadings(nodes.names, packed))


class FleetPower:
    """Asks the simulator at ``address``. Close it."""

    def __init__(self, address: str, account: Account) -> None:
        self._address = address.rstrip("/")
        self._account = account
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def read(self) -> tuple[Sequence[str], Mapping[str, Floats]]:
        """Names, and for each metric one value per name."""
        if self._http is None:
            self._http = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), headers={"Authorization": self._account.basic}
            )
        try:
            async with self._http.get(f"{self._address}/fleet/power", allow_redirects=False) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as wrong:
            raise DeviceError(f"the simulator does not answer ({type(wrong).__name__})", node=self._address) from wrong
        if response.status != 200:
            raise DeviceError(f"the simulator answered {response.status}", node=self._address, request="power")
        try:
            told = msgspec.msgpack.decode(body, type=FleetReadings)
            return told.names, {name: np.frombuffer(column, dtype="<f8") for name, column in told.columns.items()}
        except (msgspec.DecodeError, ValueError) as wrong:
            raise DeviceError("the simulator's reply cannot be read", node=self._address, request="power") from wrong
