"""The planner: model calls in a query -> a Plan, a pure value that prints as EXPLAIN."""
