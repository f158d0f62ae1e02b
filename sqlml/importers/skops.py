"""Read the object in a file of skops.io.dump without running code from the file.

A skops file is a zip archive of arrays and a JSON tree of types and attributes. skops builds an
object only if all types are trusted: by default scikit-learn's estimators, numpy and plain
containers. `HARMLESS` adds parts of estimators and their functions. A forged part can make
scikit-learn's predict read beyond the arrays. Therefore the import copies and checks the arrays,
and verification predicts in a child process (`verifying/source.py`).
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, MissingDependencyError, UntrustedArtifactError
from sqlml.importers.frame import expand_paths
from sqlml.ir.damaged_file import READING_ERRORS, ZIP_ERRORS
from sqlml.limits import MAX_ARTIFACT_BYTES

_HARMLESS_PATHS = (
    "sklearn.tree._tree.Tree sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor "
    "sklearn.neighbors._ball_tree.BallTree sklearn.neighbors._kd_tree.KDTree "
    "sklearn.metrics._dist_metrics.ChebyshevDistance64 EuclideanDistance64 "
    "ManhattanDistance64 MinkowskiDistance64 "
    # Parts of estimators in Python, which have only attributes.
    "numpy.dtype scipy.interpolate._bsplines.BSpline sklearn.calibration._CalibratedClassifier "
    "_SigmoidCalibration sklearn.cluster._bisect_k_means._BisectingTree "
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace "
    "sklearn.gaussian_process.kernels.CompoundKernel ConstantKernel DotProduct ExpSineSquared "
    "Exponentiation Matern Product RBF RationalQuadratic Sum WhiteKernel "
    "sklearn.impute._iterative.IterativeImputer _ImputerTriplet "
    "sklearn.metrics._scorer._PassthroughScorer sklearn.model_selection._split.KFold "
    "StratifiedKFold sklearn.multiclass._ConstantPredictor "
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer SGDOptimizer "
    "sklearn.utils._bunch.Bunch "
    # Functions that estimators were fitted with.
    "numpy.max mean min sum scipy._lib.array_api_compat.numpy._aliases.asarray "
    "sklearn.cluster._kmeans._kmeans_single_elkan _kmeans_single_lloyd "
    "sklearn.feature_selection._univariate_selection.chi2 f_classif f_regression r_regression "
)
HARMLESS = frozenset(expand_paths(_HARMLESS_PATHS))

FREE_BYTES = 64 << 20
MAX_RATIO = 200
"""An archive may unpack to at most FREE_BYTES plus MAX_RATIO times the archive size."""


def read_skops(content: bytes, is_trusted: bool = False) -> Any:
    """Read the object in a skops file; if `is_trusted` is true, the file may run code."""
    check_archive(content)
    try:
        from skops.io import get_untrusted_types
    except ImportError as error:
        raise MissingDependencyError(
            f"a skops file needs {error.name or 'skops'}, which is not installed: "
            "pip install 'sqlml[skops]'"
        ) from None
    try:
        types = frozenset(get_untrusted_types(data=content))
        unknown = sorted(types - HARMLESS)
        if unknown and not is_trusted:
            raise UntrustedArtifactError(
                f"the skops file contains types that are not trusted: {', '.join(unknown)}; save "
                "such a part in its library's own format, or, if you trust the file, connect with "
                "allow_pickle=True, or write OPTIONS (allow_pickle = true) in CREATE MODEL"
            )
        # Warnings about other versions are ignored, because the importers check versions.
        with warnings.catch_warnings(action="ignore"):
            return _load_checked(content, sorted(types))
    except (ArtifactError, UntrustedArtifactError):
        raise
    except Exception as error:  # The code of the classes may raise any exception.
        raise ArtifactError(
            f"the skops file cannot be read ({type(error).__name__}: {error}); it is damaged, or "
            "was written by another version of skops"
        ) from error


def _load_checked(content: bytes, trusted: Sequence[str]) -> Any:
    """Load an object like `skops.io.loads`, but reject forged trees, which could crash."""
    from skops.io._audit import audit_tree, get_tree
    from skops.io._utils import read_schema

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        schema, context = read_schema(archive)
        root = get_tree(schema, context, trusted=list(trusted))
        audit_tree(root, trusted=list(trusted))
        for node in _walk_nodes(root):
            constructor = getattr(node, "constructor", None)
            if getattr(constructor, "class_name", None) == "Tree":
                _check_tree(node.args.construct(), node.attrs.construct())
        return root.construct()


def _walk_nodes(root: Any) -> Iterator[Any]:
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)
        elif hasattr(node, "children") and id(node) not in seen:
            seen.add(id(node))
            yield node
            pending.extend(node.children.values())
            pending.append(getattr(node, "cached", None))


def _check_tree(arguments: Any, state: Any) -> None:
    """Check the arguments and the state from which scikit-learn builds a Tree."""
    if isinstance(arguments, tuple) and len(arguments) == 3 and isinstance(state, dict):
        num_features, class_counts, num_outputs = arguments
        nodes, values = state.get("nodes"), state.get("values")
        counts = (num_features, num_outputs, state.get("max_depth"), state.get("node_count"))
        if (
            all(type(n) is int or isinstance(n, np.integer) for n in counts)
            and isinstance(class_counts, np.ndarray)
            and isinstance(nodes, np.ndarray)
            and isinstance(values, np.ndarray)
            and class_counts.shape == (int(num_outputs),)
            and nodes.shape == (int(state["node_count"]),)
            and nodes.dtype.names is not None
            and values.ndim == 3
        ):
            return
    raise ArtifactError("a tree in the skops file is inconsistent; the file is damaged")


def check_archive(content: bytes) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        sizes = [entry.file_size for entry in archive.infolist()]
    except (*READING_ERRORS, *ZIP_ERRORS) as error:
        raise ArtifactError(f"not a zip archive, or a damaged one ({error})") from error
    # The stated sizes suffice, because zipfile never reads more of an entry.
    if sum(sizes) > min(MAX_ARTIFACT_BYTES, FREE_BYTES + MAX_RATIO * len(content)):
        raise ArtifactError(f"the archive claims to unpack to {sum(sizes)} bytes: over the limit")
    return archive
