"""The configuration that the controller delivers: put into the personality's members, and kept as it was delivered."""
