"""HTCondor, by its own commands: `condor_submit`, `condor_q`, `condor_history`, `condor_rm`."""
