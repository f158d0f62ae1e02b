"""A model compared with the library that it came from."""
