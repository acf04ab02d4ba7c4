"""What nodes print: captured, kept, searched, watched for trouble."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={
        "The hardware": {"console": ".commands.console:console"},
        "Through the BMCs": {"hardware console": ".commands.console:console"},
    },
)
