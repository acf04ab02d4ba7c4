"""LSF, by its own commands: `bsub`, `bjobs`, `bkill`, `bqueues`."""
