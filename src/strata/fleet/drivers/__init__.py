"""Drivers that belong to no layer: a site's own commands."""
