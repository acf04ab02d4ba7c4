"""What people and devices give us: read, and told what is wrong with it and what would be accepted."""
