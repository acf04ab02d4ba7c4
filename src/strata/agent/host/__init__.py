"""What the agent reads from and does to the machine itself."""
