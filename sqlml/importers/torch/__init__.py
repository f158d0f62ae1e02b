"""torch: modules, exported programs, .pt2 files and skorch's nets -> outputs of a Program.

`importer.py` is the entry point. It exports a module and converts the graph (`aten_graph.py`), or
keeps the module whole for the torch backend. Rules for layers and layout are in `aten_rules.py`,
tensors are in `tensors.py`. `wrapped_modules.py` adds the probabilities of skorch's nets and of
sqlml's networks. Files are read without torch. To cover another aten operator, add a rule to one
of the tables.
"""
