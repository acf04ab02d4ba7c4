"""What feeds what with power, and the guards that make power go on and off in that order."""
