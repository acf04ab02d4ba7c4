"""Caps that never add up to more than the site may draw, whatever has become of the commands under way."""
