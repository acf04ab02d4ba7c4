"""How a signed image gets onto the node: checked while it is transferred, in memory whole or on demand."""
