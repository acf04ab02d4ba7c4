"""Samples of power, energy, caps and temperature of every node, kept in columns."""
