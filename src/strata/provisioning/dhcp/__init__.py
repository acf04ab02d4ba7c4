"""Addresses and boot files for machines: DHCP answered from what is known of the nodes, TFTP, router advertisements."""
