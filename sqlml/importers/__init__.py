"""Importers: from a fitted object or a model file to a Program and the columns that it reads.

`registry.import_model` finds the importer of a fitted object in tables, which map a class path to a
function. The importer runs on a `Frame` of the table's columns. The result is an `Imported`: the
Program, the features in training order, and the library with its version. `model_file.read_file`
reads a file into an object that has an importer. An object that sqlml cannot reproduce exactly
raises UnsupportedModelError with the reason and a way out.

Read first: `registry.py` (tables and the walk), `frame.py` (columns between steps), and one
importer, for example `xgboost/importer.py`. Each library has a folder with the same inner layout:
`importer.py` is the entry point, `document.py` reads the file, and `forest.py` reads the trees. A
small library is one module.

To add a class, write a function from the object and a Frame to a Frame (a transformer) or to
Outputs (a predictor). Add the function to `IMPORTERS` of the module, or to `COMPOSITES` if the
object contains other objects. Add a function that finds the columns to `SCHEMAS` if the object does
not follow scikit-learn's conventions. Add a case to tests/contract/estimators. To add a file
format, add a reader to `file_formats.READERS` and the first bytes to `detect_format`.
"""
