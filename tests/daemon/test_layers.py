"""A controller that runs some layers: what is there works, and what is not says so."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata.cli import main
from strata.core.errors import Unavailable
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.settings import ListenSettings
from strata.hardware.inventory.service import InventoryService
from strata.hardware.model import POWER_ROOM
from strata.hardware.settings import HardwareSettings
from strata.power.capmc.service import CapmcService
from strata.power.capping.operations import CapOperations
from strata.power.settings import PowerSettings
from strata.power.site.site import SitePower
from strata.power.telemetry.service import PowerService
from strata.provisioning.images.service import ImageService

pytestmark = pytest.mark.slow


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        yield Path(name)


def settings(directory: Path, *layers: str) -> Settings:
    return Settings(
        state_dir=directory,
        controller_id="c1",
        layers=layers,
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
        power=PowerSettings(limit=5000.0),
    )


async def test_power_runs_over_somebody_elses_provisioning(short_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = settings(short_dir, "power")
    async with running(told) as fleet:
        assert fleet.of(InventoryService) and fleet.of(PowerService) and fleet.of(CapmcService)
        assert fleet.of(CapOperations) is fleet.of(CapmcService).caps  # one order of caps for whoever sets them
        assert POWER_ROOM in fleet.controller.model.guards
        assert list(fleet.controller.model.variables) == ["power"]
        with pytest.raises(
            Unavailable, match="images: not available: this service was started without the provisioning layer"
        ):
            fleet.of(ImageService)
        url = f"unix:{told.admin_socket}"
        code = await asyncio.to_thread(main.run, ["--url", url, "power", "policy", "list"])
        assert code == 0, capfd.readouterr().err
        assert fleet.of(SitePower).view().limit == 5000
        code = await asyncio.to_thread(main.run, ["--url", url, "image", "list"])
        assert code != 0
        assert (
            "images: not available: this service was started without the provisioning layer" in capfd.readouterr().err
        )


async def test_hardware_alone_neither_measures_nor_asks_for_power(
    short_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = settings(short_dir, "hardware")
    async with running(told) as fleet:
        assert POWER_ROOM not in fleet.controller.model.guards
        code = await asyncio.to_thread(main.run, ["--url", f"unix:{told.admin_socket}", "energy", "show"])
        assert code != 0
        assert "started without the power layer" in capfd.readouterr().err


async def test_a_running_service_keeps_to_another_limit_when_told(short_dir: Path) -> None:
    import msgspec

    from strata.daemon.reload import Reload

    told = settings(short_dir, "power")
    lower = msgspec.structs.replace(told, power=PowerSettings(limit=4000.0, ramp=500.0))
    async with running(told) as fleet:
        site = fleet.of(SitePower)
        assert site.view().limit == 5000
        Reload(fleet, told, lambda: lower).run()
        assert (site.view().limit, site.view().ramp) == (4000, 500)
        assert site.parameters().power_cap_target == 4000
