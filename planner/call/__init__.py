"""One call of a model: the stages from its arguments to its SQL."""
