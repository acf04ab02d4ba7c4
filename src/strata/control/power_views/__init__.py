"""What the API takes and tells about power: records, no behaviour. Watts, joules, Unix seconds; None: not known."""
