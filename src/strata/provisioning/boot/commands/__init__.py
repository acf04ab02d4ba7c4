"""``strata boot``."""
