"""The job layer's section of the configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.settings_section import Section
from strata.core.units import Seconds

_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]\Z")


class TargetTraits(Section, frozen=True, kw_only=True):
    """What the site knows of a target, and its scheduler does not say."""

    near: tuple[str, ...] = ()
    """Data that its nodes reach quickly: folders (``/lustre/project``) or any other place that jobs name the same way
    (``s3://bucket``). Whatever is below one is near too. Default: none."""
    price: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    """What a kWh costs there. Default: not known."""
    tariff: Mapping[str, Annotated[float, Meta(ge=0, le=1_000_000)]] = {}
    """What it costs from a time of the day on (``"22:00": 0.18``, UTC), until the next. Rules over ``price``."""
    watts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """What a node draws under load, where a job has no limit of its own. Default: not known."""


class BrokerSettings(Section, frozen=True, kw_only=True):
    """What counts when several targets can run a job: all of it comes to one sum, and the least is taken."""

    wait: Annotated[float, Meta(ge=0, le=1_000_000)] = 1.0
    """What an hour of waiting costs. Default: 1."""
    far: Annotated[float, Meta(ge=0, le=1_000_000)] = 1.0
    """What each place of a job's data costs that is not near a target. Default: 1, as an hour of waiting."""
    energy: Annotated[float, Meta(ge=0, le=1_000_000)] = 1.0
    """By how much the price of a job's energy counts. Default: 1, as it is."""


class JobSettings(Section, frozen=True, kw_only=True):
    """Whose jobs run as which account, what this machine gives to jobs, and how long ended ones are kept."""

    live: ClassVar[frozenset[str]] = frozenset({"retention", "kept_most", "broker", "targets"})

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
    """How often each scheduler is asked about all its jobs. Default: 5 s; a question costs it as much as one
    ``squeue``."""
    array_most: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """Tasks that one array may have. Default: 10,000; all of them are one record."""
    retention: Seconds = Seconds(7 * 86400)
    """How long a job that has ended stays listed. Default: a week. Its output stays where it was written."""
    kept_most: Annotated[int, Meta(ge=100, le=10_000_000)] = 200_000
    """The most ended jobs that stay listed; the oldest are removed first. Default: 200,000, some hundred megabytes of
    memory."""

    broker: BrokerSettings = BrokerSettings()
    """What counts when several targets can run a job. Default: an hour of waiting counts as much as one data
    location that is not near, or as one unit of money for energy."""
    targets: Mapping[str, TargetTraits] = {}
    """What the site knows of targets, by name. Default: nothing."""

    def check(self) -> None:
        """That rules can be understood, and that nobody is asked all the time."""
        for name, traits in self.targets.items():
            for begins in traits.tariff:
                if not _CLOCK.match(begins):
                    told = f"{begins[:20]!r} is no time of the day, such as 22:00"
                    raise BadRequest(told, where=f"targets.{name}.tariff")
        for name, account in self.accounts.items():
            if name.count("*") > 1 or account.count("*") > name.count("*"):
                told = f"{name}: {account}: one * at most, and on the right only where there is one on the left"
                raise BadRequest(told, where="accounts")
        if not 1 <= self.poll <= 300:
            raise BadRequest("must be between 1s and 300s", where="poll")
