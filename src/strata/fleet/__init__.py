"""The running fleet, below all layers: what is known and wanted of its nodes, and what every layer needs of it."""
