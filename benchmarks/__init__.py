"""Side-by-side runs of sqlml and the libraries that its models come from."""

import os

os.environ.setdefault("SQLML_WAIT_FOR_KERNELS", "1")  # machine code is what is measured
