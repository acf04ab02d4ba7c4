"""Applications: portable jobs, containers, accelerators."""
