"""One controller process's loop: follow the store, step the engine, call drivers, share the fleet with the others."""
