"""IaaS: from power-on to a running system image."""
