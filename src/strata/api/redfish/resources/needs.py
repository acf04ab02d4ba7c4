"""The rights that resources ask for."""

from __future__ import annotations

from strata.fleet.access.principal import Right

READ = Right("read", "node")
ACT = Right("change", "bmc")
READ_BMC = Right("read", "bmc")
READ_HARDWARE = Right("read", "hardware")
READ_ALERT = Right("read", "alert")
READ_AUDIT = Right("read", "audit")
READ_GROUP = Right("read", "group")
READ_STATUS = Right("read", "status")
