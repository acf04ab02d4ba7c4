"""The commands: ``strata flow``, ``strata system``, ``strata emergency-revoke``."""
