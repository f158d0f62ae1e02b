"""The planner's rewrites of a statement, one rule a file."""
