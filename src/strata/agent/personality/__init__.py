"""What the node is for: its personality, run as containers on the minimal OS."""
