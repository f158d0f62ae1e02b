"""CREATE MODEL .. AS SELECT: a model is trained on the rows of a query."""
