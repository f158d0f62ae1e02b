"""Convert CatBoost's binary format to JSON, with CatBoost itself in a child process."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator
from pathlib import Path

from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.errors import ArtifactError, MissingDependencyError, UnsupportedModelError

MAGIC = b"CBM1"


def convert_to_json(content: bytes) -> bytes:
    try:
        with Child(f"{__name__}:run_conversion", content) as child:
            return child.first
    except ChildEnded as end:
        raise ArtifactError(
            f"a process in which CatBoost reads this file {end}; the file is damaged or hostile"
        ) from None
    except ChildFailed as failure:
        if failure.name in ("ImportError", "ModuleNotFoundError"):
            raise MissingDependencyError(
                "this file is in CatBoost's binary format, which CatBoost itself reads: "
                "pip install 'sqlml[catboost]'"
            ) from None
        if match := re.search(r"with (text|embedding) features only", failure.message):
            raise UnsupportedModelError(
                f"CatBoost's {match[1]} features are not supported"
            ) from None
        raise ArtifactError(
            f"CatBoost cannot read this file, or write it as JSON ({failure.message}); where it "
            "was trained, write save_model('model.json', format='json', pool=train_pool)"
        ) from None


def run_conversion(content: bytes) -> Generator[bytes, bytes, None]:
    """Yield the model as a JSON document; this runs in the child process."""
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        binary_path, json_path = Path(folder) / "model.cbm", Path(folder) / "model.json"
        binary_path.write_bytes(content)
        model = catboost.CatBoost()
        model.load_model(str(binary_path))
        model.save_model(str(json_path), format="json")
        yield json_path.read_bytes()
