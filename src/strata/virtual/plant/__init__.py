"""The machine room around simulated nodes: PDUs, chassis and switches, each with a BMC."""
