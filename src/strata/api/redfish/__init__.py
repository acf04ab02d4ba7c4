"""Northbound Redfish: the whole machine as one service at ``/redfish/v1``. A face: it holds no logic of its own."""

from strata.core.room import Room

ROOM = Room(apps={"/redfish": ".routes:APP"})
