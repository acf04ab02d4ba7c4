"""What answers machines that boot, put together: DHCP, TFTP and the boot server, and the files that nginx serves."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack

from strata.api.web_account import web_account
from strata.control.peer_boot import BootElsewhere
from strata.control.service import Service
from strata.control.settings import Settings
from strata.daemon.ground import Ground
from strata.daemon.hardware import Opened
from strata.daemon.neighbours import Neighbours
from strata.provisioning.addresses import Pool, misplaced
from strata.provisioning.boot.fragment import Site
from strata.provisioning.boot.ground import Ground as BootGround
from strata.provisioning.boot.media import Media
from strata.provisioning.boot.nginx_files import BootFiles
from strata.provisioning.boot.service import BootService
from strata.provisioning.dhcp.boot_files import ARM_FILE, EFI_FILE
from strata.provisioning.dhcp.service import DhcpService
from strata.provisioning.dhcp.tftp import find_ipxe
from strata.provisioning.networks import Networks

_TAIL_LINES = 300
_KERNEL = re.compile(r"\[ *\d+\.\d+\]")
_BINARIES = (EFI_FILE, "snponly.efi", ARM_FILE)


async def open_boot(
    service: Service,
    settings: Settings,
    ground: Ground,
    elsewhere: BootElsewhere,
    networks: Networks,
    hardware: Opened,
    neighbours: Neighbours,
    parts: AsyncExitStack,
) -> BootService:
    """DHCP, TFTP and the boot server on the networks."""

    async def hold(name: str, reason: str) -> None:
        done = await service.edits.hold(service.registry.select(name), reason, "strata")
        await service.settled(done.revision)

    async def console_tail(name: str) -> str:
        texts = [line.text for line in await hardware.console.tail(name, _TAIL_LINES)]
        # The machine has begun the next boot already; what its kernel said last is what one wants to know.
        said = [place for place, text in enumerate(texts) if _KERNEL.match(text)]
        return "\n".join(texts[: said[-1] + 1] if said else texts)

    def held(name: str) -> bool:
        index = service.registry.find(name)
        return index >= 0 and bool(service.registry.brakes.held[index])

    account = web_account(settings.listen.account) if settings.listen.tls else None
    media = Media(settings.media_dir, reader=(account.pw_uid, account.pw_gid) if account else None)
    boot = BootService(
        networks,
        ground.directory,
        ground.identity,
        ground.profiles,
        Site(
            controllers=neighbours.peers.urls,
            ca=ground.authority.pem.decode(),
            release_keys=(ground.signer.public_pem,),
        ),
        BootGround(
            attached=elsewhere.attached,
            off=elsewhere.off,
            leased=ground.leased,
            asked=elsewhere.asked,
            begun=elsewhere.begun,
            held=held,
            hold=hold,
            console_tail=console_tail,
            profile_of=ground.profile_of,
        ),
        ground.alarms,
        builds=ground.builds,
        media=media,
        binaries={name: path.read_bytes() for name in _BINARIES if (path := find_ipxe(name, ground.ipxe))},
    )
    await boot.start()
    parts.push_async_callback(boot.stop)
    service.edits.addresses = lambda is_taken: Pool(networks, is_taken).assign
    service.edits.misplaced = misplaced(networks)
    dhcp = DhcpService(
        networks, ground.directory, settings.state_dir, alarm=ground.alarms, heard=ground.heard, ipxe=ground.ipxe
    )
    await dhcp.start()
    parts.push_async_callback(dhcp.stop)
    return boot


def boot_files(settings: Settings, networks: Networks | None) -> BootFiles | None:
    """What nginx serves on the boot networks."""
    if networks is None or not networks.subnets:
        return None
    hosts = tuple(dict.fromkeys(str(subnet.server) for subnet in networks.subnets))
    return BootFiles(hosts=hosts, port=networks.boot_port + 1, root=settings.minos_dir)
