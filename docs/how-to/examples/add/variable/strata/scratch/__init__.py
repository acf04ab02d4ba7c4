"""Scratch disks: a layer of its own, with one variable."""
