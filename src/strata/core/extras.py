"""Libraries that only some sites need. Where one is missing, the error says the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strata.core.errors import StrataError, Unavailable


@contextmanager
def needs(library: str, extra: str, what: str, error: type[StrataError] = Unavailable) -> Iterator[None]:
    """Around imports: raises ``error`` if ``library``, which the extra brings and ``what`` needs, is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != library:
            raise
        hint = f"install it with: pip install 'strata[{extra}]'"
        raise error(f"{what} needs {library}, which is not installed", hint=hint) from None
