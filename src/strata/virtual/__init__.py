"""Hardware that isn't there: a simulated fleet of any size, in process or behind real sockets."""
