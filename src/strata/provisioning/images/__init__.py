"""The repository of system images: content-addressed, signed, served to nodes as squashfs."""
