"""The programs that Slurm runs to save power and to look after nodes: standard library only, and quick to start."""
