"""What a machine needs that has nothing yet: which programs are started, and whether set-up brings them."""
