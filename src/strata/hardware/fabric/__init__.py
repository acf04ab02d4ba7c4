"""How things are cabled."""
