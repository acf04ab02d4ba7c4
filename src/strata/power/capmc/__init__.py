"""CAPMC, the power API that schedulers speak: requests to replies over ``machine.CapmcMachine``."""
