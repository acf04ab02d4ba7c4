"""The framework of the REST API: who asks, rights, errors, documentation. Rooms plug their routes into it."""
