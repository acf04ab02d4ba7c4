"""Workload managers, an adapter each: pure functions that build commands and parse replies, and one command runner."""
