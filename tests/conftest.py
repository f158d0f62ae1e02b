"""Kernels are waited for: tests are about machine code, but those that are about the wait."""

import os

os.environ.setdefault("SQLML_WAIT_FOR_KERNELS", "1")
