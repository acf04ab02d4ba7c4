"""Slurm, by its own commands: ``sinfo``, ``squeue``, ``scontrol``."""
