"""The other controllers of the same store: who they are, how they are asked, and what they ask."""

from strata.core.room import Room

ROOM = Room(raw_apps={"/peer/v1": ".routes:peers_app"})
