"""Kubernetes, by its Job API: `batch/v1`."""
