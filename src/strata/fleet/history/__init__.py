"""What happened to each node: the transition log in the store, and a local index of it by node."""
