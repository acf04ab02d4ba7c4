"""Builds of images: recipes, and the programs that carry them out apart from everything else."""
