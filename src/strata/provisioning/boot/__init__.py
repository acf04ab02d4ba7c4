"""Boot service: what a machine fetches between its firmware and its minimal OS."""
