"""``strata apply`` and ``strata document``."""
