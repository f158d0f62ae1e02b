"""Explanations: what each column of a row contributes to what a model says of it."""
