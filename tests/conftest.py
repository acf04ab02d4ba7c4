"""Shared fixtures. ``tests/support`` holds the helpers that several rooms use."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
