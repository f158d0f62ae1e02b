# demo   install sqlml with what its demo needs into .venv, and run the demo
# test   install the rest (torch and Spark too), run all tests on DuckDB 2.0, those of Spark where
#        there is Java, and the SQL tests on DuckDB 1.5
# nightly  the long tests: many rows, thousands of random pipelines, fuzzing
# lint   ruff, mypy --strict and the import layers
# bench  time scoring beside the source libraries and others, family by family (hours)
# bench-report  draw the results of `make bench`, and write them into docs/performance.md
# bench-passes  time what the model passes save
# bench-spark   time scoring in Spark SQL beside functions of Python (minutes; needs Java)
# docs   write docs/operators.md anew
# clean  remove the virtual environments and caches
#
# A stamp file per step remembers that it was done with this pyproject.toml and constraints.txt.

PYTHON ?= python3
VENV ?= .venv
VENV15 ?= .venv15
WORKERS ?= 2

PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DUCKDB15 := 1.5.6

# LightGBM alone expects the system to have an OpenMP library; see $(VENV)/.openmp.
export LD_LIBRARY_PATH := $(abspath $(VENV))/openmp$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))

# OpenMP's threads wait in a busy loop unless told not to, which costs most where two test workers
# share two cores.
export OMP_WAIT_POLICY ?= passive

# The families of `make bench`; `make bench-trees OPTIONS='--rounds 3'` runs one.
FAMILIES := trees operators scaling pipelines end_to_end choice starting planner

.PHONY: demo test nightly lint bench $(FAMILIES:%=bench-%) bench-report bench-passes bench-compile bench-spark docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/.openmp
	$(PY) -m sqlml demo

test: $(VENV)/.dev $(VENV15)/.duckdb
	$(PY) -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal --ignore tests/spark
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || \
		echo "no Java: the tests of Spark are skipped (README.md says how to get it)"
	$(PY) -m pytest --quiet tests/spark
	$(VENV15)/bin/python -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal \
		tests/unit/catalog tests/unit/udfs tests/unit/planner tests/e2e --ignore tests/e2e/test_packaging.py

nightly: $(VENV)/.dev
	$(PY) -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal -m nightly

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

# One after the other, and all of them though one finds a wrong number.
bench: $(VENV)/.bench
	@failed=; for family in $(FAMILIES); do $(MAKE) bench-$$family || failed=1; done; test -z "$$failed"

$(FAMILIES:%=bench-%): bench-%: $(VENV)/.bench
	$(PY) -m benchmarks.$* $(OPTIONS) --write benchmarks/results/$*.json

bench-report: $(VENV)/.bench
	$(PY) -m benchmarks.plots
	$(PY) -m benchmarks.report

bench-passes: $(VENV)/.openmp
	$(PY) -m benchmarks.passes

bench-compile: $(VENV)/.openmp
	$(PY) -m benchmarks.compile_time

bench-spark: $(VENV)/.bench
	$(PY) -m benchmarks.spark $(OPTIONS) --write benchmarks/results/spark.json

docs: $(VENV)/.dev
	$(PY) -m tests.contract.estimators.page --write

clean:
	rm -rf $(VENV) $(VENV15) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sqlml needs Python 3.11 or later; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[demo]'
	touch $@

# Where the system has no libgomp.so.1, LightGBM gets the copy inside scikit-learn's wheel.
$(VENV)/.openmp: $(VENV)/.demo
	mkdir -p $(VENV)/openmp
	$(PY) -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || \
		ln -sf $(abspath $(VENV))/lib/python3*/site-packages/scikit_learn.libs/libgomp-*.so.* $(VENV)/openmp/libgomp.so.1
	touch $@

$(VENV)/.dev: $(VENV)/.openmp
	$(PIP) --editable '.[dev,torch]'
	touch $@

$(VENV)/.bench: $(VENV)/.openmp
	$(PIP) --editable '.[bench]'
	touch $@

# A second environment that holds DuckDB 1.5 and finds everything else in the first.
$(VENV15)/.duckdb: $(VENV)/.dev
	$(PYTHON) -m venv --without-pip $(VENV15)
	site=$$($(VENV15)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade --no-deps \
		--target "$$site" duckdb==$(DUCKDB15) && \
	$(PY) -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$site/first_environment.pth"
	touch $@
