"""The table forms that explain a model: a row at a time, over many rows, and by itself."""
