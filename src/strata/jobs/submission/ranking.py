"""What it comes to if a job goes to a target: waiting, data that is far, energy. Pure: same figures, same sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from strata.jobs.settings import BrokerSettings, TargetTraits
from strata.jobs.submission.records import JobDocument

_HOUR = 3600.0
_DAY = 86_400
_UNKNOWN = TargetTraits()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one target."""

    wait: float | None
    """Hours; None: nobody knows."""
    far: int
    places: int
    """Of the job's data, near or far."""
    energy: float | None
    """kWh; None: nobody knows what a node draws."""
    price: float | None
    """Of a kWh, as long as it would run."""
    parts: tuple[float, float, float]
    """What waiting, data and energy come to, by the site's weights."""

    @property
    def cost(self) -> float:
        """All together. Rounded: what differs by less is the same."""
        return round(sum(self.parts), 6)

    @property
    def shown(self) -> dict[str, Any]:
        """The figures by name."""
        return {"wait": self.wait, "far": self.far, "energy": self.energy, "price": self.price, "cost": self.cost}

    @property
    def words(self) -> str:
        """All of them, in words."""
        wait, far, energy = (f"{part:.2f}" for part in self.parts)
        waits = "it is not known how long it waits" if self.wait is None else f"it waits {self.wait:.2f} h"
        told = [f"{waits} ({wait})"]
        if self.places:
            told.append(f"{self.far} of {self.places} places of its data are far ({far})")
        if self.energy is not None and self.price is not None:
            told.append(f"{self.energy:.2f} kWh at {self.price:.3f} ({energy})")
        elif self.parts[2]:
            told.append(f"what its energy costs is not known: as much as at the dearest ({energy})")
        return f"{', '.join(told)}: {self.cost:.2f} in all"


def weigh(
    document: JobDocument,
    expected: Mapping[str, float | None],
    traits: Mapping[str, TargetTraits],
    weights: BrokerSettings,
    now: float,
) -> Mapping[str, Figures]:
    """Target → what it comes to there. ``expected``: when it would begin, as each target says.

    What nobody knows of a target is held to be as bad as at the worst of the others, and no better than an hour of
    waiting: silence is no advantage."""
    waits = {name: None if at is None else max(0.0, at - now) / _HOUR for name, at in expected.items()}
    worst = max((1.0, *(wait for wait in waits.values() if wait is not None)))
    places = tuple(dict.fromkeys((*document.data, *(copy.source for copy in document.stage_in))))
    spent: dict[str, tuple[float | None, float | None]] = {}
    for name, wait in waits.items():
        of = traits.get(name, _UNKNOWN)
        energy = _energy(document, of)
        begins = now + (worst if wait is None else wait) * _HOUR
        spent[name] = (energy, mean_price(of, begins, _seconds(document)))
    money = {
        name: energy * price for name, (energy, price) in spent.items() if energy is not None and price is not None
    }
    dearest = max(money.values(), default=0.0)
    found = {}
    for name, wait in waits.items():
        far = sum(not _near(place, traits.get(name, _UNKNOWN).near) for place in places)
        energy, price = spent[name]
        found[name] = Figures(
            wait=wait,
            far=far,
            places=len(places),
            energy=energy,
            price=price,
            parts=(
                weights.wait * (worst if wait is None else wait),
                weights.far * far,
                weights.energy * money.get(name, dearest),
            ),
        )
    return found


def mean_price(traits: TargetTraits, begins: float, seconds: float) -> float | None:
    """Of a kWh, over so many seconds; None: it is not known."""
    if not traits.tariff:
        return traits.price
    steps = sorted((_clock(text), price) for text, price in traits.tariff.items())
    # Before the first of the day, the last of the day before holds.
    steps = [(0, steps[-1][1]), *steps] if steps[0][0] else steps
    day = sum(price * (end - at) for (at, price), end in zip(steps, [*(at for at, _ in steps[1:]), _DAY], strict=True))
    days, rest = divmod(max(seconds, 1.0), _DAY)
    whole = days * day
    at, left = begins % _DAY, rest
    while left > 0:
        price = next(price for begin, price in reversed(steps) if begin <= at)
        end = next((begin for begin, _ in steps if begin > at), _DAY)
        spent = min(left, end - at)
        whole, left, at = whole + price * spent, left - spent, end % _DAY
    return whole / max(seconds, 1.0)


def _energy(document: JobDocument, traits: TargetTraits) -> float | None:
    watts = document.needs.power or traits.watts
    if watts is None:
        return None
    tasks = len(document.array.indices) if document.array else 1
    return watts * document.needs.nodes * tasks * _seconds(document) / _HOUR / 1000


def _seconds(document: JobDocument) -> float:
    """For how long it may run; an hour where it does not say."""
    return float(document.needs.time or _HOUR)


def _near(place: str, near: tuple[str, ...]) -> bool:
    return any(place == one or place.startswith(f"{one.rstrip('/')}/") for one in near)


def _clock(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60
