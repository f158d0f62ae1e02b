"""The torch backend: Programs of tensor operators on the CPU or a GPU.

It takes a Program that `passes.lower` has lowered, and returns a `TorchCompiled`, whose constants
are on the device.

Read first:

* `backend.py`: the backend, and the binding of nodes.
* `functions.py`: a function per operator, with the results of the reference.
* `gpu_transfers.py`: batches on a GPU, with transfers that overlap computation.

`fused/` runs a whole tree ensemble as one Triton kernel. To add an operator, add a function to
`functions.FUNCTIONS`; the contract tests compare it with the reference.
"""

from sqlml.backends.torch.backend import TorchBackend, TorchCompiled

__all__ = ["TorchBackend", "TorchCompiled"]
