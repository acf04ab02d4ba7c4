"""The repository of system images: content-addressed, signed, served to nodes as squashfs."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={
        "The fleet": {"image": ".commands.image:image"},
        "Making": {
            "image import": ".commands.make:import_",
            "image build": ".commands.make:build",
            "image export": ".commands.make:export",
        },
        "Looking": {
            "image list": ".commands.tags:list_",
            "image show": ".commands.tags:show",
            "image diff": ".commands.tags:diff",
            "image verify": ".commands.tags:verify",
        },
        "Changing": {
            "image tag": ".commands.tags:tag",
            "image promote": ".commands.tags:promote",
            "image sign": ".commands.tags:sign",
            "image delete": ".commands.tags:delete",
            "image undelete": ".commands.tags:undelete",
            "image gc": ".commands.tags:gc",
        },
    },
)
