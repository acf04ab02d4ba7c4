"""PBS Professional and OpenPBS, by their own commands: `qsub`, `qstat`, `qdel`, `pbsnodes`."""
