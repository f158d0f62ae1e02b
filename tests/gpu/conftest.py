"""Without a GPU, what needs one is not even collected."""

from __future__ import annotations

from sqlml.backends.devices import is_available

collect_ignore_glob = [] if is_available("cuda") else ["test_gpu_operators.py", "test_gpu_trees.py"]
