"""The dashboard: a face in the browser. It is files, and a client of the public API; the service only hands them out.

``web`` has the sources, ``static`` what is built of them (``make dashboard``).
"""
