"""What every runtime is to the rest: a name, what it can do, and a builder of commands. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from strata.jobs.containers.records import Abilities, Ready


class Copy(NamedTuple):
    """A copy of this folder."""

    source: str


Content = bytes | Copy


class Runtime(Protocol):
    """Builds commands. Starts nothing, looks at nothing."""

    name: str
    install: str
    """What installs it, in words."""

    @property
    def program(self) -> str:
        """What is started; without a slash it is looked up."""

    @property
    def abilities(self) -> Abilities:
        """What it can do."""

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """What starts ``argv``. ``folder``: an empty one of the user's, for this start alone, with ``files`` in it."""

    def files(self, ready: Ready, argv: Sequence[str]) -> Mapping[str, Content]:
        """What has to be in ``folder``, by path there; a path that ends with a slash is a folder."""

    def variables(self, folder: str) -> Mapping[str, str]:
        """What the program itself is told by its environment."""


class Plain:
    """The parts that most runtimes have no use for."""

    def files(self, ready: Ready, argv: Sequence[str]) -> Mapping[str, Content]:
        """None."""
        return {}

    def variables(self, folder: str) -> Mapping[str, str]:
        """None."""
        return {}
