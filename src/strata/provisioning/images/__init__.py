"""The repository of system images: content-addressed, signed, served to nodes as squashfs."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.provisioning.images.routes",),
    commands={
        "The fleet": {
            "image": "strata.provisioning.images.commands.image:image",
        },
        "Making": {
            "image import": "strata.provisioning.images.commands.make:import_",
            "image build": "strata.provisioning.images.commands.make:build",
            "image export": "strata.provisioning.images.commands.make:export",
        },
        "Looking": {
            "image list": "strata.provisioning.images.commands.tags:list_",
            "image show": "strata.provisioning.images.commands.tags:show",
            "image diff": "strata.provisioning.images.commands.tags:diff",
            "image verify": "strata.provisioning.images.commands.tags:verify",
        },
        "Changing": {
            "image tag": "strata.provisioning.images.commands.tags:tag",
            "image promote": "strata.provisioning.images.commands.tags:promote",
            "image sign": "strata.provisioning.images.commands.tags:sign",
            "image delete": "strata.provisioning.images.commands.tags:delete",
            "image undelete": "strata.provisioning.images.commands.tags:undelete",
            "image gc": "strata.provisioning.images.commands.tags:gc",
        },
    },
)
