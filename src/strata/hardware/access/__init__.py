"""Who we are to controllers, and who they are to us: passwords and certificates."""
