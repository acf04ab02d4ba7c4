"""Being logged in at the site's identity provider: getting a token, and keeping it."""
