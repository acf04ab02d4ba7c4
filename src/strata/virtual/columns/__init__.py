"""The parts of ``strata.virtual.nodes``: each one aspect of all simulated nodes, as columns over their index."""
