"""The operators by family: for each its row in the table (`ops.TABLE`) and what it computes."""
