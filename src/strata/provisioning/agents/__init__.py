"""The controller's side of the agents that run on nodes: who is attached, what they say, what they are told."""
