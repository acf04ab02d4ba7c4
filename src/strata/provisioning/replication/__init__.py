"""Images and minimal OSes on every controller: each fetches what it lacks from one that has it.

What there is, is in the store, which all controllers share; the files are each one's own. Knows nothing of how another
controller is reached: ``Read`` in ``copying`` is all that it needs.
"""
