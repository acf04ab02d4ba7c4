"""What the tests of the command share: the result of a command line, and a stream that claims to be a terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Result(NamedTuple):
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]


class Terminal(io.StringIO):
    """Text that a person would see."""

    def isatty(self) -> bool:
        return True
