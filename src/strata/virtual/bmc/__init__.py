"""Simulated BMCs behind real sockets: the server, its HTTP, how it misbehaves, what it sends by itself."""
