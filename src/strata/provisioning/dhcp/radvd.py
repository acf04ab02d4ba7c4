"""Router advertisements: machines make their own IPv6 addresses and learn the resolvers. The work is done by radvd.

Where no prefix is declared the advertisement is empty. It still spares every boot 16 seconds: iPXE has no other way to
know that there is no router to wait for.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from strata.fleet.child_process import Child
from strata.provisioning.networks import Networks


def config_text(networks: Networks) -> str:
    """radvd's configuration. We announce prefixes and resolvers, never ourselves as a router."""
    lines: list[str] = []
    for interface in networks.advertised:
        here = [prefix for prefix in networks.ipv6 if prefix.interface == interface]
        lines += [
            f"interface {interface} {{",
            "  AdvSendAdvert on;",
            "  MinRtrAdvInterval 15;",
            "  MaxRtrAdvInterval 60;",
            "  AdvDefaultLifetime 0;",
            "  AdvManagedFlag off;",
            "  AdvOtherConfigFlag off;",
        ]
        lines += [f"  prefix {prefix.prefix} {{ AdvOnLink on; AdvAutonomous on; }};" for prefix in here]
        if resolvers := dict.fromkeys(str(server) for prefix in here for server in prefix.dns):
            lines.append(f"  RDNSS {' '.join(resolvers)} {{ AdvRDNSSLifetime 180; }};")
        if domains := dict.fromkeys(domain for prefix in here for domain in prefix.domains if domain):
            lines.append(f"  DNSSL {' '.join(domains)} {{ AdvDNSSLLifetime 180; }};")
        lines.append("};")
    return "\n".join(lines) + "\n"


def radvd(networks: Networks, directory: Path) -> Child:
    """A radvd for these networks, still to be started; its files are in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    config, pid = directory / "radvd.conf", directory / "radvd.pid"
    config.write_text(config_text(networks), encoding="utf-8")
    config.chmod(0o644)
    with suppress(FileNotFoundError):
        pid.unlink()
    argv = ["radvd", "--nodaemon", "--config", str(config), "--pidfile", str(pid), "--logmethod", "stderr"]

    async def is_up() -> bool:
        return pid.exists()

    return Child("radvd", argv, is_up, package="radvd")
