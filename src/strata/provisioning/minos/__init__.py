"""The minimal OS that nodes boot into: a kernel of the distribution and one initrd, which is never abandoned.

Built from the machine's own Debian packages, the same inputs to the same bytes, and signed. Knows nothing of nodes,
of how they boot, or of the agent beyond that it is a Python package.
"""

from strata.core.room import Room

ROOM = Room(commands={"The service": {"minos": ".commands:minos"}})
