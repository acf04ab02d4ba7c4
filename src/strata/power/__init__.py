"""Telemetry, energy accounting, capping and policies, and the CAPMC service."""
