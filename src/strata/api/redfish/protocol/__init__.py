"""Redfish's protocol (DSP0266): HTTP, who asks, queries, errors and messages. Knows no resource."""
