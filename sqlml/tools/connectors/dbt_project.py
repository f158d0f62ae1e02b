"""Write the macros that a dbt project needs to have ML models among its models."""

from __future__ import annotations

from pathlib import Path

MACROS = Path(__file__).with_name("dbt_macros.sql")
"""The macros, including the materialization `ml_model`."""


def add_macros(project: Path) -> Path:
    """Write `macros/sqlml.sql`, or write it anew; returns where it is.

    Raises:
        OSError: the folder is no project of dbt, cannot be written, or has another file there.
    """
    if not (project / "dbt_project.yml").is_file():
        raise FileNotFoundError(f"no dbt_project.yml in {project.resolve()}")
    text = MACROS.read_text(encoding="utf-8")
    path = project / "macros" / "sqlml.sql"
    if path.exists() and not path.read_text("utf-8", "replace").startswith(text.splitlines()[0]):
        raise FileExistsError(f"{path} exists and is not from `sqlml dbt`; rename it")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
