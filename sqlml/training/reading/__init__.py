"""Rows of a query: read, held out, checked, and shaped as estimators take them."""
