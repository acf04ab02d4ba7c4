"""How a node and its controller speak: identity, the long poll, logs, discovery."""
