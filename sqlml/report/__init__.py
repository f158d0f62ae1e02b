"""Reports: one HTML page that says what a model is, how good it is on given rows, and why.

::

    Subject (subject.py)      the model, and its data in temporary tables
    -> Section (parts.py)     one from each of about_model.py, quality.py, .., of aggregates
    -> HTML (make_report.py)       by page.html.j2, with plots drawn as SVG (charts.py, charts.py)
"""
