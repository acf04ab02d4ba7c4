"""The strata command. Holds no logic: it asks the API and shapes the answer."""
