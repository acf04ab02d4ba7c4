"""The programs that Slurm runs to save power and to look after nodes, and ``apbasil`` for the batch systems of Cray's
machines: standard library only, and quick to start."""
