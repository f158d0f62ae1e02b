"""Reports: one HTML page that describes a model, how good it is on given rows, and why.

Comes in: a model, a query or table, and optional labels and groups. Goes out: a `Report`, a
self-contained page that can be saved or shown in a notebook.

Read first: `subject.py`, which loads the model and keeps its data in temporary tables;
`make_report.py`, which collects the sections and renders them with `page.html.j2`. `parts.py`
defines the parts of a section, and `charts.py` draws plots as SVG. To add a section, write a
function from a Subject to a Section and add it to the list in `make_report.py`.
"""
