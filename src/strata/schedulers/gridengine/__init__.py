"""Grid Engine, by its own commands: ``qhost``, ``qmod``, ``qconf``."""
