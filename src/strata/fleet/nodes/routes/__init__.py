"""REST of nodes, and of the way of each to its goal."""
