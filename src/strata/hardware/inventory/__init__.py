"""What hardware there is, was, and cannot be."""
