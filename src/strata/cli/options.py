"""Numbers and addresses that people type as options."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import urlsplit

import click

from strata.core.units import watts


class Between(click.FloatRange):
    """A range of numbers. ``nan`` is in none, though it is neither below nor above one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number that can be used", param, ctx)
        return found


class Watts(Between):
    """A range of powers, which people write as ``350``, ``350W`` or ``1.5kW``."""

    name = "watts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The watts."""
        try:
            return super().convert(watts(value) if isinstance(value, str) else value, param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[::1]:PORT`` or ``:PORT`` (all addresses)."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if port is None or (host is None and not text.startswith(":")) or parts.netloc != text or "@" in text:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host or "0.0.0.0", port
