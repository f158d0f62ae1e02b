"""`read_skops`: the object in a file that skops.io.dump wrote, without running code of the file.

A skops file is a zip archive of arrays and a JSON tree of types and attributes. skops turns it into
an object only if every type in it is trusted: scikit-learn's estimators, numpy and plain containers
are by default. `HARMLESS` adds types that skops leaves to its caller: parts of estimators, some of
which make scikit-learn's predict read beyond its arrays when they are forged,
and functions that an estimator was fitted with. The import calls none of them: it copies their
arrays and checks every number in them. To compare a model with its file they do predict, in a
process of its own (`verifying/source.py`).
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, MissingDependencyError, UntrustedArtifactError
from sqlml.ir.damaged_file import STUMBLES, ZIP_STUMBLES
from sqlml.limits import MAX_ARTIFACT_BYTES

HARMLESS = frozenset(
    (
        "sklearn.tree._tree.Tree",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.metrics._dist_metrics.ChebyshevDistance64",
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.metrics._dist_metrics.ManhattanDistance64",
        "sklearn.metrics._dist_metrics.MinkowskiDistance64",
        # parts of estimators, in Python: attributes and no more
        "numpy.dtype",
        "scipy.interpolate._bsplines.BSpline",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.cluster._bisect_k_means._BisectingTree",
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        "sklearn.gaussian_process.kernels.CompoundKernel",
        "sklearn.gaussian_process.kernels.ConstantKernel",
        "sklearn.gaussian_process.kernels.DotProduct",
        "sklearn.gaussian_process.kernels.ExpSineSquared",
        "sklearn.gaussian_process.kernels.Exponentiation",
        "sklearn.gaussian_process.kernels.Matern",
        "sklearn.gaussian_process.kernels.Product",
        "sklearn.gaussian_process.kernels.RBF",
        "sklearn.gaussian_process.kernels.RationalQuadratic",
        "sklearn.gaussian_process.kernels.Sum",
        "sklearn.gaussian_process.kernels.WhiteKernel",
        "sklearn.impute._iterative.IterativeImputer",
        "sklearn.impute._iterative._ImputerTriplet",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.StratifiedKFold",
        "sklearn.multiclass._ConstantPredictor",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.utils._bunch.Bunch",
        # functions that estimators were fitted with
        "numpy.max",
        "numpy.mean",
        "numpy.min",
        "numpy.sum",
        "scipy._lib.array_api_compat.numpy._aliases.asarray",
        "sklearn.cluster._kmeans._kmeans_single_elkan",
        "sklearn.cluster._kmeans._kmeans_single_lloyd",
        "sklearn.feature_selection._univariate_selection.chi2",
        "sklearn.feature_selection._univariate_selection.f_classif",
        "sklearn.feature_selection._univariate_selection.f_regression",
        "sklearn.feature_selection._univariate_selection.r_regression",
    )
)

FREE_BYTES = 64 << 20
MAX_RATIO = 200
"""What the entries of an archive may unpack to: so much, and so many times the archive."""


def read_skops(content: bytes, is_trusted: bool = False) -> Any:
    """The object in a skops file.

    Args:
        is_trusted: the caller trusts the file to hold types of any library, which may run code.

    Raises:
        UntrustedArtifactError: it holds types that are not trusted; the message names them.
        ArtifactError: damaged, hostile, too large, or of another format.
        MissingDependencyError: skops is not installed.
    """
    check_archive(content)
    try:
        from skops.io import get_untrusted_types
    except ImportError as error:
        raise MissingDependencyError(
            f"a skops file needs {error.name or 'skops'}, which is not installed: "
            "pip install 'sqlml[skops]'"
        ) from None
    try:
        asked = frozenset(get_untrusted_types(data=content))
        unknown = sorted(asked - HARMLESS)
        if unknown and not is_trusted:
            raise UntrustedArtifactError(
                f"the skops file holds types that are not trusted: {', '.join(unknown)}; save "
                "such a part in its library's own format, or, if you trust the file, connect with "
                "allow_pickle=True, or write OPTIONS (allow_pickle = true) in CREATE MODEL"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other versions: importers check what they read
            return _load(content, sorted(asked))
    except (ArtifactError, UntrustedArtifactError):
        raise
    except Exception as error:  # objects are made by their classes' code: it may raise anything
        raise ArtifactError(
            f"the skops file cannot be read ({type(error).__name__}: {error}); it is damaged, or "
            "was written by another version of skops"
        ) from error


def _load(content: bytes, trusted: Sequence[str]) -> Any:
    """What `skops.io.loads` does, with a look at each tree before scikit-learn allocates it.

    skops checks types, not contents, and scikit-learn's Tree believes what it is told: it reads
    class counts past the end of their array, and the length of an array that has none. A forged
    file would end the process.

    Raises:
        ArtifactError: a tree that does not fit itself.
        Exception: whatever the classes in the file raise when they are made of wrong parts.
    """
    from skops.io._audit import audit_tree, get_tree
    from skops.io._utils import read_schema

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        schema, context = read_schema(archive)
        root = get_tree(schema, context, trusted=list(trusted))
        audit_tree(root, trusted=list(trusted))
        for node in _nodes(root):
            made_by = getattr(node, "constructor", None)
            if getattr(made_by, "class_name", None) == "Tree":
                _check_tree(node.args.construct(), node.attrs.construct())
        return root.construct()


def _nodes(root: Any) -> Iterator[Any]:
    """skops' nodes, each once: they may refer to each other in circles."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, list | tuple):
            waiting.extend(node)
        elif hasattr(node, "children") and id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(node.children.values())
            waiting.append(getattr(node, "cached", None))


def _check_tree(arguments: Any, state: Any) -> None:
    """The arguments of Tree(n_features, n_classes, n_outputs), and of its __setstate__(dict)."""
    if isinstance(arguments, tuple) and len(arguments) == 3 and isinstance(state, dict):
        features, classes, outputs = arguments
        nodes, values = state.get("nodes"), state.get("values")
        numbers = (features, outputs, state.get("max_depth"), state.get("node_count"))
        if (
            all(type(n) is int or isinstance(n, np.integer) for n in numbers)
            and isinstance(classes, np.ndarray)
            and isinstance(nodes, np.ndarray)
            and isinstance(values, np.ndarray)
            and classes.shape == (int(outputs),)
            and nodes.shape == (int(state["node_count"]),)
            and nodes.dtype.names is not None
            and values.ndim == 3
        ):
            return
    raise ArtifactError("a tree in the skops file is inconsistent; the file is damaged")


def check_archive(content: bytes) -> zipfile.ZipFile:
    """The zip archive in `content`, once its size when unpacked is known to be bearable.

    Raises:
        ArtifactError: no archive, cut off, or a decompression bomb.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        sizes = [entry.file_size for entry in archive.infolist()]
    except (*STUMBLES, *ZIP_STUMBLES) as error:
        raise ArtifactError(f"not a zip archive, or a damaged one ({error})") from error
    # zipfile reads no more of an entry than the size that is written there.
    if sum(sizes) > min(MAX_ARTIFACT_BYTES, FREE_BYTES + MAX_RATIO * len(content)):
        raise ArtifactError(f"the archive claims to unpack to {sum(sizes)} bytes: over the limit")
    return archive
