"""Models scored outside SQL, with the source library's own methods."""
