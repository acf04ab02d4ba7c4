"""REST of desires and of the documents that hold them."""
