"""People whom an OpenID Connect provider knows: their tokens, and what rules give them."""
