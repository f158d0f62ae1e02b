"""Write the macros that a dbt project needs to have ML models among its models."""

from __future__ import annotations

from pathlib import Path

MACROS = Path(__file__).with_name("dbt_macros.sql")
"""The macros, including the materialization `ml_model`."""


def add_macros(project: Path) -> Path:
    """Write `macros/sqlml.sql` and return its path.

    Raises:
        OSError: the folder is not a dbt project, cannot be written, or has another such file.
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
