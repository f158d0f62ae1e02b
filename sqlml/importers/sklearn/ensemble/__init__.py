"""Importers of sklearn.ensemble and sklearn.tree.

`decision_trees.py` has trees and forests, `gradient_boosting.py` boosted trees, and
`combined_estimators.py` AdaBoost, bagging, voting and stacking of any estimators.
"""
