"""The store of one machine: an SQLite file."""
