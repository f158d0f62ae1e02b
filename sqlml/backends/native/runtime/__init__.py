"""The runtime: compiled kernels and the C code around them, as one library per platform."""
