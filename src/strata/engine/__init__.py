"""Planner, reconciler, guards, budgets. Pure logic; time and the world come in as arguments."""
