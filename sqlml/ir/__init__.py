"""The intermediate representation: a typed, immutable DAG of operators called Program."""
