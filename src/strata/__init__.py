"""Strata, an HPC cluster manager: declare what a machine should be, and it stays so."""

__version__ = "0.1.0"
