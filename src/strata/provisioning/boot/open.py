"""Opens the room of booting: DHCP, TFTP and the boot server, and the files that nginx serves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest
from strata.fleet.access.authority import Authority
from strata.fleet.alarm import AlarmSink
from strata.fleet.fleet import Fleet
from strata.fleet.peers.peers import Peers
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.inventory.service import InventoryService
from strata.provisioning.addresses import Pool, misplaced
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.fragment import Site
from strata.provisioning.boot.media import Media
from strata.provisioning.boot.peers import BootElsewhere
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.questions import Questions as BootGround
from strata.provisioning.boot.requests import wanted_profile
from strata.provisioning.boot.service import BootService
from strata.provisioning.bootnets.service import BootNetworks
from strata.provisioning.dhcp.boot_files import ARM_FILE, EFI_FILE
from strata.provisioning.dhcp.responder import Heard
from strata.provisioning.dhcp.service import DhcpService
from strata.provisioning.dhcp.tftp import find_ipxe
from strata.provisioning.directory import Directory
from strata.provisioning.identity.identity import Identity
from strata.provisioning.minos.artefacts import INITRD, KERNEL
from strata.provisioning.networks import Networks
from strata.provisioning.settings import media_dir, minos_dir
from strata.provisioning.signing import Signer

_TAIL_LINES = 300
_KERNEL = re.compile(r"\[ *\d+\.\d+\]")
_BINARIES = (EFI_FILE, "snponly.efi", ARM_FILE)


_SAFE = re.compile(r"/[A-Za-z0-9_./@+: -]+\Z")


class BootFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where kernels and initrds are served, and from which folder."""

    hosts: tuple[str, ...]
    """Our addresses on the boot networks."""
    port: int
    root: Path
    """``STATE/minos``: a folder per minimal OS, which nginx's workers can read."""

    def block(self, root: Path) -> str:
        """nginx's ``server`` block, for the folder as nginx finds it; nothing where we are on no network. It has
        kernels and initrds of digests, and no more."""
        if not _SAFE.match(str(root)):
            raise BadRequest(
                "nginx needs an absolute path of plain characters",
                where=repr(str(root))[:120],
                hint="use a state directory with letters, digits and _./@+- only",
            )
        if not self.hosts:
            return ""
        return f"""  limit_conn_zone $binary_remote_addr zone=strata_boot:10m;
  server {{
{_listen(self.hosts, self.port)}
    root "{root}";
    sendfile on;
    tcp_nopush on;
    max_ranges 1;
    client_max_body_size 1k;
    limit_conn strata_boot 64;
    client_header_timeout 10s;
    large_client_header_buffers 4 8k;
    send_timeout 60s;
    location / {{
      return 404;
    }}
    location ~ "^/[0-9a-f]{{12}}/(?:{KERNEL}|{INITRD})$" {{
      limit_except GET {{
        deny all;
      }}
      add_header Cache-Control "public, max-age=31536000, immutable";
    }}
  }}"""


def _listen(hosts: Sequence[str], port: int) -> str:
    lines = []
    for host in hosts:
        address = ip_address(host)
        lines.append(f"    listen {f'[{address}]' if address.version == 6 else address}:{port};")
    return "\n".join(lines)


async def open_boot(
    fleet: Fleet,
    networks: Networks,
    *,
    directory: Directory,
    identity: Identity,
    profiles: Profiles,
    builds: Builds,
    signer: Signer,
    alarms: AlarmSink,
    elsewhere: BootElsewhere,
    ipxe: Sequence[Path],
) -> BootService:
    """DHCP, TFTP and the boot server on the networks; they answer once the fleet runs."""
    state_dir, console = fleet.settings.state_dir, fleet.of(ConsoleLog)
    placed: dict[str, str] = {}  # address → MAC of the machine that got it by the place where it is cabled

    async def hold(name: str, reason: str) -> None:
        done = await fleet.edits.hold(fleet.registry.select(name), reason, "strata")
        await fleet.settled(done.revision)

    async def console_tail(name: str) -> str:
        texts = [line.text for line in await console.tail(name, _TAIL_LINES)]
        # The machine has begun the next boot already; what its kernel said last is what one wants to know.
        said = [place for place, text in enumerate(texts) if _KERNEL.match(text)]
        return "\n".join(texts[: said[-1] + 1] if said else texts)

    def held(name: str) -> bool:
        index = fleet.registry.find(name)
        return index >= 0 and bool(fleet.registry.brakes.held[index])

    media = Media(media_dir(state_dir), reader=(fleet.web.pw_uid, fleet.web.pw_gid) if fleet.web else None)
    boot = BootService(
        networks,
        directory,
        identity,
        profiles,
        Site(
            controllers=fleet.of(Peers).urls,
            ca=fleet.of(Authority).pem.decode(),
            release_keys=(signer.public_pem,),
        ),
        BootGround(
            attached=elsewhere.attached,
            speaks=elsewhere.speaks,
            off=elsewhere.off,
            leased=lambda address: placed.get(address, ""),
            asked=elsewhere.asked,
            begun=elsewhere.begun,
            held=held,
            hold=hold,
            console_tail=console_tail,
            profile_of=lambda name: wanted_profile(fleet, name),
        ),
        alarms,
        builds=builds,
        media=media,
        binaries={name: path.read_bytes() for name in _BINARIES if (path := find_ipxe(name, ipxe))},
    )
    sightings = fleet.of(InventoryService).sightings

    def heard(machine: Heard) -> None:
        if machine.kind == "leased":
            if machine.node and machine.port:
                placed[machine.address] = machine.mac
            sightings.seen(machine.mac, machine.address, machine.vendor_class, machine.hostname)

    dhcp = DhcpService(networks, directory, state_dir, alarm=alarms, heard=heard, ipxe=ipxe)
    fleet.edits.addresses = lambda is_taken: Pool(networks, is_taken).assign
    fleet.edits.misplaced = misplaced(networks)

    async def follow() -> None:
        fleet.edits.misplaced = misplaced(networks)
        await boot.listen_anew()
        await dhcp.restart()

    async def begin() -> None:
        await fleet.keep(boot)
        await fleet.keep(dhcp)
        await fleet.of(BootNetworks).follow(follow)

    fleet.begin(begin)
    return boot


def boot_files(state_dir: Path, networks: Networks | None) -> BootFiles | None:
    """What nginx serves on the boot networks."""
    if networks is None:
        return None
    hosts = tuple(dict.fromkeys(str(subnet.server) for subnet in networks.subnets))
    return BootFiles(hosts=hosts, port=networks.boot_port + 1, root=minos_dir(state_dir))
