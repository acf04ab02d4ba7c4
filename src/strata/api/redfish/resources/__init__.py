"""What there is below ``/redfish/v1``, by resource. Each module has its ``ROUTES``."""
