"""What the API's tests share: a service over fakes, its credentials, and clients that need no sockets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from fake_facade import FakeFacade
from route_table import Clock

from strata.api.app import create_app
from strata.api.front import Door
from strata.api.services import FrontSecret, Limits
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import LOCAL_ADMIN, Role
from strata.fleet.access.records import TokenRequest
from strata.platform.config.service import ConfigService
from strata.platform.delivery.service import DeliveryService
from strata.platform.health.service import HealthService
from strata.platform.rollouts.service import RolloutService
from strata.provisioning.boot.requests import BootControl
from strata.provisioning.images.service import ImageService
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from support.fake_agent_layer import fake_agent_layer
from support.fake_boot import FakeBoot
from support.fake_config import fake_config
from support.fake_delivery import fake_delivery
from support.fake_flows import fake_flows
from support.fake_health import fake_health
from support.fake_machine import fake_machine
from support.fake_platform import fake_platform
from support.fake_power import fake_power
from support.fake_rollouts import fake_rollouts
from support.fake_workload import fake_workload
from support.image_site import small_images
from support.rooms import api_services


class Service:
    """The API over fakes, both doors."""

    def __init__(self, *, nodes: int = 3, authority: Path | None = None, limits: Limits | None = None) -> None:
        self.store = MemoryStore()
        self.ledger = Ledger(self.store)
        self.clock = Clock()
        self.facade = FakeFacade(nodes)
        self.auth = Authenticator(self.store, self.ledger, clock=self.clock)
        machine, self.ground = fake_machine(self.facade)
        self.services = api_services(
            fleet=self.facade,
            authenticator=self.auth,
            limits=limits,
            authority=Authority.open(authority) if authority else None,
            rooms={
                **machine,
                **fake_power(self.facade),
                **fake_agent_layer(self.facade),
                **fake_workload(self.facade),
                **fake_platform(self.facade),
                **fake_flows(self.facade),
                ImageService: small_images(self.store, self.ledger),
                BootControl: FakeBoot(self.facade, self.store, self.ledger),
                ConfigService: fake_config(),
                HealthService: fake_health(self.facade),
                DeliveryService: fake_delivery(self.facade),
                RolloutService: fake_rollouts(),
            },
        )

    def app(self, door: Door = "admin") -> Any:
        return create_app(self.services, door)

    def client(self, door: Door = "admin", token: str = "") -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if door == "front":
            headers["X-Strata-Front-Secret"] = self.services.get(FrontSecret).value
        transport = httpx.ASGITransport(app=self.app(door), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://strata", headers=headers)

    async def token(self, role: Role, scope: Sequence[str] = (), ttl: int = 3600) -> str:
        return (await self.auth.mint(LOCAL_ADMIN, TokenRequest(role=role, scope=tuple(scope), ttl=ttl))).token
