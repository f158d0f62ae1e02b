"""The model catalog: ordinary tables in the database's own schema `sqlml`."""
