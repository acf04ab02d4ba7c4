"""``strata status``, ``log-level``, ``version`` and ``store``."""
