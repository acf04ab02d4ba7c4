"""Redfish: the client that all BMCs share, and one module for each thing that can be asked of one."""
