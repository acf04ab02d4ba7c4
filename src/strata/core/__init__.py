"""The vocabulary: names, nodesets, locations, variables, facts, desires, mutations.

Pure: no I/O, no clock, no other layer of Strata; but for ``host``.
"""
