"""REST over HTTP. Holds no logic: it checks who asks, calls control, and shapes the answer."""
