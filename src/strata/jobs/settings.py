"""The job layer's section of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.section import Section
from strata.core.units import Seconds


class JobSettings(Section, frozen=True, kw_only=True):
    """Whose jobs run as which account, what this machine gives to jobs, and how long ended ones are kept."""

    live: ClassVar[frozenset[str]] = frozenset({"retention", "kept_most"})

    accounts: Mapping[str, str] = {}
    """Which local account somebody's jobs run as: name of the credential → account, the first that fits. One ``*`` on
    the left stands for anything, and on the right for what it stood for: ``"*@site.example": "*"``. Default: none,
    the account of the same name. Root, accounts below ``first_uid`` and those that do not exist are always refused."""
    first_uid: Annotated[int, Meta(ge=1, le=2**31)] = 1000
    """The least number of an account that jobs may run as. Default: 1000, where people's accounts begin on Debian."""
    local: bool = True
    """Whether this machine runs jobs itself, as the target ``local``. Default: yes."""
    cores: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """Cores of this machine that jobs get, all together. Default: 0, as many as there are."""
    memory: Annotated[int, Meta(ge=0, le=2**40)] = 0
    """MiB of memory that jobs get, all together. Default: 0, nine tenths of what there is."""
    accelerators: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Accelerators of this machine that jobs get. Default: 0."""
    poll: Seconds = Seconds(5)
    """How often each scheduler is asked about all its jobs, whoever wants to know. Default: 5 s; a question costs it as
    much as one ``squeue``."""
    array_most: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """Tasks that one array may have. Default: 10,000; all of them are one record."""
    retention: Seconds = Seconds(7 * 86400)
    """How long a job that has ended stays listed. Default: a week. Its output stays where it was written."""
    kept_most: Annotated[int, Meta(ge=100, le=10_000_000)] = 200_000
    """Ended jobs that stay listed at most; the oldest go first. Default: 200,000, some hundred megabytes of memory."""

    def check(self) -> None:
        """That rules can be understood, and that nobody is asked all the time."""
        for name, account in self.accounts.items():
            if name.count("*") > 1 or account.count("*") > name.count("*"):
                told = f"{name}: {account}: one * at most, and on the right only where there is one on the left"
                raise BadRequest(told, where="accounts")
        if not 1 <= self.poll <= 300:
            raise BadRequest("is between 1s and 300s", where="poll")
