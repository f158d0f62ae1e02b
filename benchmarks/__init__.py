"""Side-by-side runs of sqlml and the libraries that its models come from."""
