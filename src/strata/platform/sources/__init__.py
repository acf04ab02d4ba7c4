"""Sources of images: what the repository says images are made of, and the making of those that are not there."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:SourceService",),
    routes=(".routes",),
    commands={"What is wanted": {"image-source": ".commands:image_source"}},
)
