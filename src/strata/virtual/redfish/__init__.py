"""What a simulated BMC presents over Redfish: its resource trees, in tables of views and handlers."""
