"""HaaS: controllers of machines, reached over Redfish."""
