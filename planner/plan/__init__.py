"""The Plan as a value, and how EXPLAIN prints it."""
