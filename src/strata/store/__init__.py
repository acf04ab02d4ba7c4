"""Durable, shared state: revisions, compare-and-swap, leases, watch. See ``strata.store.protocol``."""
