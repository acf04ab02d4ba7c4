"""``strata up`` and ``down``: a whole service with a fleet on this machine, to try things out."""
