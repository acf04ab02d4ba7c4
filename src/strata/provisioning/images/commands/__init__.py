"""``strata image``."""
