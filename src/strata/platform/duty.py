"""What only one of the controllers that have the platform layer does: rollouts, branches, playbooks, images."""

PLATFORM = "platform"
"""The name of that duty. One for all of it: a commit that reaches nodes in waves is followed by whoever does both."""
