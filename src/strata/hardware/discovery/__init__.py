"""Finding BMCs and reading what they know."""
