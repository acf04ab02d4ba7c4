"""Sources of images: what the repository says images are made of, and the making of those that are not there."""

from strata.core.room import Room

_HERE = "strata.platform.sources"

ROOM = Room(
    services=(f"{_HERE}.service:SourceService",),
    routes=(f"{_HERE}.routes",),
    commands={"What is wanted": {"image-source": f"{_HERE}.commands:image_source"}},
)
