"""Explanations of predictions, computed inside the Program, and facts about its model.

Read first:

* `explained.py`: which output is explained, and how contributions become outputs.
* `additive.py`: exact contributions for sums of trees and linear terms.
* `model_facts.py`: the rows of the table functions about models.

To give an operator exact contributions, add a method to `AdditiveContributions` and an entry to
`_RULES`. An operator whose columns each depend on one input column belongs in `owners.py`.
"""
