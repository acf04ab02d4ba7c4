"""Redfish: the client that all controllers share, and one module for each thing that can be asked of one."""
