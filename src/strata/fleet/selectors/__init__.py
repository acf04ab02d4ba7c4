"""The language in which people name nodes: ``@compute state:faulted``."""
