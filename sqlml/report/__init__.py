"""Reports: an HTML page that describes a model, and how good the model is on given rows.

Input: a model, a query or table, and optional labels and groups. Output: a `Report`, which is a
self-contained page to save or to show in a notebook.

Read first: `subject.py`, which loads the model and stores the data in temporary tables, and
`make_report.py`, which collects the sections and renders them with `page.html.j2`. `parts.py`
defines the parts of a section, and `charts.py` draws plots as SVG. To add a section, write a
function that maps a Subject to a Section, and add it to `SECTIONS` in `make_report.py`.
"""
