"""What the power layer adds to others: nothing is switched on for which the site has no power."""

from __future__ import annotations

from strata.core.model import Guard, Layer
from strata.hardware.model import CAPS_FREE, POWER_ROOM

DRIVER = "site-power"

LAYER = Layer(
    guards=(
        Guard(
            name=POWER_ROOM,
            driver=DRIVER,
            ask_again_after=15,
            doc="The site's power limit leaves room for it, or there is none.",
        ),
        Guard(
            name=CAPS_FREE,
            driver=DRIVER,
            by_hand=True,
            doc="Caps may be set by hand: no limit and no policy keeps them.",
        ),
    ),
    asks={"power-on": (POWER_ROOM,)},
)
