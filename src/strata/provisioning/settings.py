"""The provisioning layer's section of the configuration file, and where it keeps its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.settings_section import Section


class ProvisioningSettings(Section, frozen=True, kw_only=True):
    """Where nodes are booted, and how their agents are served."""

    networks: Path | None = None
    """A file that says on which networks nodes boot (YAML). Default: none; then machines that boot get no
    answer, and nodes' agents are only served on the front door."""
    namespace: str = ""
    """Network namespace in which the service lives, with the boot networks. Default: empty, where it is started. Images
    are built where it is started in any case: building needs Debian's packages."""
    hold_most: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Requests of agents that are held open at a time; further agents ask again every few seconds, and learn only then
    of commands. Default: 0, what memory and open files of the machine allow, 32,000 at most. Each costs
    up to 80 KB of memory and four open files, here and in nginx together."""

    def check(self) -> None:
        """That the networks file is one. Whether its interfaces are there is seen where the service lives."""
        if self.networks is None:
            return
        if not self.networks.is_file():
            raise BadRequest(f"no such file: {self.networks}", where="networks")
        from strata.provisioning.networks import parse_file

        parse_file(self.networks)


def signing_dir(state_dir: Path) -> Path:
    """The key that vouches for images and the minimal OS."""
    return state_dir / "signing"


def minos_dir(state_dir: Path) -> Path:
    """Builds of the minimal OS."""
    return state_dir / "minos"


def media_dir(state_dir: Path) -> Path:
    """Boot media, each there for the minutes of one boot."""
    return state_dir / "media"


def images_dir(state_dir: Path) -> Path:
    """The repository of system images."""
    return state_dir / "images"
