"""The section about the distribution of predictions."""

from __future__ import annotations

from sqlml.report import charts
from sqlml.report.charts import drawn, histogram
from sqlml.report.parts import Note, Part, Plot, Section, clipped, distinct, table
from sqlml.report.quality import Classes, classes_of
from sqlml.report.scores import SCORES, call_of
from sqlml.report.subject import MOST_TARGETS, Subject

_MOST_BARS = 15
"""Maximum number of classes to draw."""


def predictions(subject: Subject) -> Section:
    """Show the distribution of scores, and how often each class is predicted."""
    return Section("predictions", "Predictions", subject.share, tuple(_parts(subject)))


def _parts(subject: Subject) -> list[Part]:
    scores = subject.scores
    if not subject.count:
        return [Note("The data has no rows.")]
    if scores is None:
        return [_of_scores(subject)]
    if scores.rows.targets > 1:
        return _of_targets(subject)
    if subject.task == "numbers":
        both = {0: "Label", 1: "Prediction"} if scores.is_labelled else None
        rows = f"(SELECT hat AS x, 1 AS s FROM {scores.table} WHERE hat IS NOT NULL)"
        if both:
            rows = (
                f"(SELECT hat AS x, 1 AS s FROM {scores.table} WHERE hat IS NOT NULL UNION ALL "
                f"SELECT y, 0 FROM {scores.table} WHERE y IS NOT NULL)"
            )
        says = "What is predicted, beside the labels." if both else "What is predicted."
        return [histogram(subject, rows, "Distribution", says, "Value", both)]
    if subject.task == "clusters":
        return [_clusters(subject)]
    classes = classes_of(subject)
    return [_counts(subject, classes), *_sureness(subject, classes)]


def _of_scores(subject: Subject) -> Part:
    """Show the scores of a model without predictions, if it has scores."""
    outputs = subject.model.program.outputs
    output = next((name for name in SCORES if name in outputs), None)
    if output is None or subject.model.program.output_type(output).width > 1:
        return Note(f"The model predicts nothing; it gives {', '.join(outputs)}.")
    scored = f"SELECT {call_of(subject.model, subject.reference)} AS x FROM {subject.rows}"
    with subject.tables.kept("samples", scored) as table:
        says = "How the model scores the rows; it predicts nothing."
        return histogram(subject, f"(SELECT x FROM {table})", "Scores", says, "Score")


def _of_targets(subject: Subject) -> list[Part]:
    """Plot the distribution of each target."""
    scores = subject.scores
    assert scores is not None
    parts: list[Part] = []
    for t, name in enumerate(subject.target_names[:MOST_TARGETS]):
        if subject.task == "numbers":
            rows = f"(SELECT hat AS x FROM {scores.table} WHERE t = {t} AND hat IS NOT NULL)"
            parts.append(histogram(subject, rows, name, "What is predicted.", "Prediction"))
            continue
        labels = scores.rows.model.program.labels[t].values
        counts = subject.of_tables(
            f"SELECT hat AS place, count(*) AS n FROM {scores.table} "
            f"WHERE t = {t} AND hat IS NOT NULL GROUP BY hat ORDER BY n DESC, hat"
        )
        places = [(clipped(str(labels[row["place"]]), 30), row["n"]) for row in counts]
        parts.append(_bars(name, "Rows for which each class is predicted.", places, "Class"))
    if subject.targets > MOST_TARGETS:
        parts.append(Note(f"{subject.targets - MOST_TARGETS:,} more targets are left out."))
    return parts


def _bars(title: str, says: str, counts: list[tuple[str, int]], what: str) -> Part:
    """Draw a bar for each of the first names."""
    if not counts:
        return Note(f"{title}: no row has a prediction.")
    names = distinct([name for name, _ in counts])
    total = sum(n for _, n in counts)
    some = [(name, n) for name, (_, n) in zip(names, counts, strict=True)][:_MOST_BARS]
    more = len(counts) - len(some)
    return Plot(
        title,
        says,
        drawn(charts.bars([(name, float(n)) for name, n in some], "Rows")),
        f"Bars of rows for each {what.lower()}; the numbers are in the table.",
        table(
            title,
            (what, "Rows", "Share"),
            [[name, n, f"{n / total:.1%}"] for name, n in some],
            f"{more:,} rarer ones are left out." if more else "",
        ),
    )


def _clusters(subject: Subject) -> Part:
    assert subject.scores is not None
    labels = subject.scores.rows.model.program.labels[0].values
    counts = subject.of_tables(
        f"SELECT hat, count(*) AS n FROM {subject.scores.table} WHERE hat IS NOT NULL "
        "GROUP BY hat ORDER BY n DESC, hat"
    )
    places = [(f"cluster {row['hat']}", row["n"]) for row in counts]
    empty = len(labels) - len(places)
    says = "Rows in each cluster, the largest first."
    if empty > 0:
        says += f" {empty:,} of {len(labels):,} clusters have no row."
    return _bars("Clusters", says, places, "Cluster")


def _counts(subject: Subject, classes: Classes) -> Part:
    """Compare how often each class is predicted with how often it is the label."""
    scores = subject.scores
    assert scores is not None
    counts = subject.of_tables(
        f"SELECT hat AS place, count(*) AS n FROM {scores.table} WHERE hat IS NOT NULL GROUP BY hat"
    )
    predicted = {row["place"]: row["n"] for row in counts}
    ordered = sorted(range(len(classes.values)), key=lambda k: -predicted.get(k, 0))
    some = [k for k in ordered if predicted.get(k) or classes.counts[k]][:_MOST_BARS]
    if not predicted:
        return Note("No row has a prediction.")
    total, labelled = sum(predicted.values()), sum(classes.counts)
    cells = []
    for k in some:
        row = [classes.names[k], predicted.get(k, 0), f"{predicted.get(k, 0) / total:.1%}"]
        if scores.is_labelled and labelled:
            row += [classes.counts[k], f"{classes.counts[k] / labelled:.1%}"]
        cells.append(row)
    columns: tuple[str, ...] = ("Class", "Predicted", "Share")
    if scores.is_labelled and labelled:
        columns += ("Labels", "Share of labels")
    more = len(classes.values) - len(some)
    return Plot(
        "Predicted classes",
        "Rows for which each class is predicted.",
        drawn(charts.bars([(classes.names[k], float(predicted.get(k, 0))) for k in some], "Rows")),
        "Bars of rows for each predicted class; the numbers are in the table.",
        table(
            "Predicted classes",
            columns,
            cells,
            f"{more:,} rarer or empty classes are left out." if more else "",
        ),
    )


def _sureness(subject: Subject, classes: Classes) -> list[Part]:
    """Plot the score distribution of the positive class, or of the predicted class."""
    scores = subject.scores
    assert scores is not None
    has_probabilities = scores.rows.scores == "probabilities"
    if scores.rows.scores == "none":
        return [Note("The model returns neither probabilities nor scores of its classes.")]
    what = "probability" if has_probabilities else "score"
    if not classes.are_two:
        rows = f"(SELECT list_max(ps) AS x FROM {scores.table} WHERE hat IS NOT NULL)"
        says = f"The {what} of the class that is predicted: how sure the model is."
        title = f"{what.capitalize()} of the prediction"
        return [histogram(subject, rows, title, says, what.capitalize(), None, has_probabilities)]
    series = None
    says = f"The {what} of class {classes.positive}."
    if scores.is_labelled and sum(count > 0 for count in classes.counts) == 2:
        series = dict(enumerate(classes.names))
        says = f"The {what} of class {classes.positive}, for the rows of each class: the further "
        says += "apart, the better."
    rows = f"(SELECT p1 AS x, y AS s FROM {scores.table} WHERE p1 IS NOT NULL)"
    title = f"Distribution of the {what}"
    return [histogram(subject, rows, title, says, what.capitalize(), series, has_probabilities)]
