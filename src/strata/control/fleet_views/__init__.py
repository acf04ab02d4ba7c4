"""What the API shows and takes of the fleet: the records behind the REST contract. Knows no HTTP and no engine.

Times are Unix seconds. A cursor here is plain text that the facade chose; the API makes it opaque.
The records about the service itself (audit, store, credentials) are in ``strata.control.service_views``.
"""
