"""What runs on a node, inside the minimal OS: standard library only, and nothing of Strata's is imported.

Start-up under emulation is most of the time until a node reports, so modules import little (`typing`, `dataclasses`
and `http.client` are avoided on purpose) and whatever is not needed for the first report is imported where it is used.
"""

VERSION = "1"
