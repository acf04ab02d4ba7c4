"""What nodes run: image sets, as their owners write them and as agents get them."""
