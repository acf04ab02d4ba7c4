"""Simulated nodes: what they are, what becomes of what they are told, what breaks. Pure but for the agents' client."""
