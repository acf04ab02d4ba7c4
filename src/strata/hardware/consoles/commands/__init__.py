"""``strata console``."""
