"""What the node is for: its image set, run as containers on the minimal OS."""
