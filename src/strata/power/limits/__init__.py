"""Limits that a node's own kernel keeps: its clock and its C-states."""
