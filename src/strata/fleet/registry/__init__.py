"""The fleet's description in memory, level with the store, and every way to change it."""
