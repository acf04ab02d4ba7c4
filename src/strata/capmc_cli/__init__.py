"""``capmc`` and ``cnselect``, the commands that schedulers run: standard library only, and quick to start."""
