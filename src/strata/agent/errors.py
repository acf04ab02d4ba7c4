"""What can go wrong on a node, by whose fault it is.

AgentError
├── Unreachable     no controller answered: try another, try later
├── Refused         the controller said no: carries the HTTP status and its reason
├── Corrupt         bytes that are not what was signed, or a release older than one already seen
└── CommandFailed   a command could not be carried out: the text goes back to the controller
"""

from __future__ import annotations


class AgentError(Exception):
    """Anything that the agent reports rather than dies of."""


class Unreachable(AgentError):
    """No controller answered, or the answer broke off."""


class Refused(AgentError):
    """The controller answered, and the answer was no."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the controller refused ({status}): {detail[:300]}")
        self.status = status


class Corrupt(AgentError):
    """An image that is not the one that was signed; it is never run."""


class CommandFailed(AgentError):
    """A command from the controller that could not be carried out."""
