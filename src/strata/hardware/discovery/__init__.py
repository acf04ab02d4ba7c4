"""Finding controllers and reading what they know."""
