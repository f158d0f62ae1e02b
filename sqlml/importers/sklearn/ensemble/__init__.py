"""Importers of sklearn.ensemble and sklearn.tree.

`decision_trees.py` turns decision trees into one tree ensemble, alone or in a forest;
`gradient_boosting.py` adds trees stage by stage; `combined_estimators.py` combines estimators of
any kind: AdaBoost, bagging, voting and stacking.
"""
