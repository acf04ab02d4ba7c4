"""IPMI 2.0: sessions, commands, records, consoles."""
