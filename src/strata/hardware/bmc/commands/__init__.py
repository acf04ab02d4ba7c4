"""``strata hardware``: what is asked of BMCs."""
