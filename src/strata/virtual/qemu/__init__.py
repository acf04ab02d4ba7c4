"""Machines that are there: QEMU processes on a bridge in a network namespace, each behind a Redfish BMC."""
