"""Importers: a fitted object or a model file -> a Program, with the columns that it reads.

A fitted object of scikit-learn, XGBoost, LightGBM, CatBoost, torch, statsmodels and others goes
through `registry.import_model`, which finds the importer of its class in tables (class path ->
function), runs it on a `Frame` of the table's columns, and returns an `Imported`: the Program, the
features in training order, and the library with its version. A file goes through
`model_file.read_file` first, which yields an object with an importer of its own. An object that
sqlml cannot reproduce exactly raises UnsupportedModelError with the reason and a way out.

Read first: `registry.py` (tables and the walk), `frame.py` (columns between steps), and one
importer, for example `xgboost/importer.py`. Each library has a folder with the same inner layout:
`importer.py` is the entry point, `document.py` reads the file, `forest.py` the trees; a small
library is one module. `boosters.py` has the last steps of the three boosting libraries.

To add a class: write a function from the object and a Frame to a Frame (a transformer) or to
Outputs (a predictor), add it to `IMPORTERS` of its module (`COMPOSITES` if it contains other
objects), say how to find its columns in `SCHEMAS` if it does not follow scikit-learn's
conventions, and add a case to tests/contract/estimators. To add a file format, add a reader to
`file_formats.READERS` and its first bytes to the detection there.
"""
