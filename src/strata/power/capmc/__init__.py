"""CAPMC, the power API that schedulers speak: an applet for each call."""

from strata.core.room import Room

ROOM = Room(apps={"/capmc": ".door:capmc_app"})
