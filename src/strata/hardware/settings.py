"""The hardware layer's section of the configuration file."""

from __future__ import annotations

from pathlib import Path

from strata.core.errors import BadRequest
from strata.core.settings_section import Section


class HardwareSettings(Section, frozen=True, kw_only=True):
    """How BMCs are reached and listened to."""

    bmc_tls: str = "pin"
    """How their certificates are judged: ``pin`` (the first one seen is the only one accepted until a person accepts
    another), ``system`` (the machine's authorities), or the path of an authority's certificate (PEM). Default: pin;
    most come with a certificate that nobody signed."""
    public_url: str = ""
    """Where BMCs reach this service to tell of events (``https://strata.example:8443``). Default: empty, they cannot;
    then their streams are followed, or they are polled."""
    poll: bool = True
    """Look at the logs and sensors of BMCs now and then, and measure power. Default: yes."""
    consoles: bool = True
    """Capture the serial consoles of nodes. Default: yes."""
    syslog: str = ""
    """``HOST:PORT`` (UDP) where nodes may send their syslog. Default: empty, nowhere."""
    netconsole: str = ""
    """``HOST:PORT`` (UDP) where nodes' kernels may send their messages. Default: empty, nowhere."""
    topology: Path | None = None
    """A file that says how nodes are cabled to switches (YAML or CSV). Default: none; only what switches and nodes
    tell."""

    def check(self) -> None:
        """That files are there."""
        if self.bmc_tls not in ("pin", "system") and not Path(self.bmc_tls).is_file():
            raise BadRequest(
                f"no such file: {self.bmc_tls[:200]}",
                where="bmc_tls",
                hint="give pin, system or a PEM file",
            )
        if self.topology is not None and not self.topology.is_file():
            raise BadRequest(f"no such file: {self.topology}", where="topology")
