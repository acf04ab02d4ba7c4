"""What this controller is to others: where its front door is reached, and the key that vouches for its images."""

from __future__ import annotations

import hashlib
import socket

from strata.daemon.settings import Settings
from strata.fleet.settings import ListenSettings
from strata.provisioning.networks import read
from strata.provisioning.settings import signing_dir
from strata.provisioning.signing import Signer


def provisions(settings: Settings) -> bool:
    """Whether real nodes are provisioned here."""
    return "provisioning" in settings.layers and not settings.simulated.address


def front_url(settings: Settings) -> str:
    """Where agents and other controllers find this one."""
    if settings.listen.url:
        return settings.listen.url.rstrip("/")
    if not provisions(settings) or settings.provisioning.networks is None:
        return f"https://{reachable(settings.listen)}:{settings.listen.port}"
    networks = read(settings.provisioning.networks)
    if not networks.subnets and not networks.ipv6:  # those that the site declares are not known yet
        return f"https://{reachable(settings.listen)}:{settings.listen.port}"
    server = networks.subnets[0].server if networks.subnets else networks.ipv6[0].prefix[1]
    return f"https://{f'[{server}]' if server.version == 6 else server}:{settings.listen.port}"


def reachable(listen: ListenSettings) -> str:
    """What to call the front door where it is open on every address."""
    if listen.host not in ("0.0.0.0", "::", "[::]", "*"):
        return listen.host
    return listen.names[0] if listen.names else socket.gethostname()


def signing_key(settings: Settings) -> str:
    """Fingerprint of the key that signs images here; empty: none does."""
    if not provisions(settings):
        return ""
    return hashlib.sha256(Signer.open(signing_dir(settings.state_dir)).public_pem.encode()).hexdigest()
