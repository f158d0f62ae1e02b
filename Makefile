# demo   install sqlml with what its demo needs into .venv, compile kernels for the last step of the
#        demo if a C compiler is found (two minutes, the first time), and run the demo
# test   install the rest (torch and Spark too), and run the tests: on DuckDB 2.0, beside them those
#        of Spark where there is Java, and on DuckDB 1.5 what depends on the version
# nightly  the long tests: many rows, thousands of random pipelines, fuzzing, the kernels of Triton,
#        the runtime for all platforms, a project of dbt, exported models in ClickHouse and in clients
#        of DuckDB, the remaining SQL tests on DuckDB 1.5, and the day's tests as other machines would
#        run them
# lint   ruff, mypy --strict and the import layers
# dist   build a release in dist/: the sdist, and this platform's wheel with the machine code of kernels
# bench  time scoring beside the source libraries and others, family by family (hours)
# bench-cascades  time approximate queries beside exact ones (needs PostgreSQL: apt-get install postgresql)
# bench-quick  compare queries with fetching a data frame, the first table of docs/performance.md (a minute)
# bench-report  draw the results of `make bench`, and write them into docs/performance.md and README.md
# bench-groups  time a model per group beside the library's own loop (a quarter of an hour)
# bench-passes  time what the model passes save
# bench-spark   time scoring in Spark SQL beside functions of Python (minutes; needs Java)
# runtime  compile the kernels that models need ahead, into this checkout (minutes, at first)
# docs   write docs/operators.md anew
# site   build the documentation's site in site/, and check its links
# clean  remove the virtual environments, the site and caches
#
# A stamp file per step remembers that it was done with this pyproject.toml and constraints.txt.

PYTHON ?= python3
VENV ?= .venv
VENV15 ?= .venv15
TRITON ?= .venv-triton
DBT ?= .venv-dbt
CLICKHOUSE ?= .venv-clickhouse
CLIENTS ?= .clients
WORKERS ?= 2

PY := $(VENV)/bin/python
# Python compiles what it imports; compiling every file of every package takes pip half of its time.
PIP := $(PY) -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt
DUCKDB15 := 1.5.6
TRITON_WHEELS := "triton==3.9.0; sys_platform == 'linux'" lief==1.0.0

# hummingbird-ml asks for an onnx of long ago, which it does not need: it has a folder of its own.
HUMMINGBIRD := $(abspath $(VENV))/hummingbird

# LightGBM alone expects the system to have an OpenMP library; see $(VENV)/.openmp.
export LD_LIBRARY_PATH := $(abspath $(VENV))/openmp$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))

# OpenMP's threads wait in a busy loop unless told not to.
export OMP_WAIT_POLICY ?= passive

# Tests start hundreds of processes, each of which would compile all that it imports (4 s of 6).
unexport PYTHONDONTWRITEBYTECODE

# Each test worker has a core of its own: a second thread for its small fits only waits for the first
# (a module of tests took 36 s to import in place of 1). LightGBM heeds the limit alone.
test% nightly%: export OMP_NUM_THREADS ?= 1
test% nightly%: export OMP_THREAD_LIMIT ?= 1

# The families of `make bench`; `make bench-trees OPTIONS='--rounds 3'` runs one.
FAMILIES := trees operators scaling pipelines end_to_end exported choice starting planner texts cascades train explain databases gpu outside.imbridge outside.retree outside.real outside.forests outside.converted

.PHONY: demo test test-duckdb test-spark test-duckdb-1.5 nightly nightly-duckdb nightly-triton nightly-dbt nightly-clickhouse nightly-clients nightly-duckdb-1.5 nightly-machines lint bench $(FAMILIES:%=bench-%) bench-kernels bench-quick bench-report bench-passes bench-compile bench-groups bench-spark runtime docs site dist clean
.DELETE_ON_ERROR:

# Without a C compiler there is no runtime, and the demo says that it leaves its last step out.
demo: $(VENV)/.openmp
	$(PY) -m sqlml.backends.native.runtime || true
	$(PY) -m sqlml demo

PYTEST := -m pytest --quiet --durations=50
PARALLEL := --numprocesses $(WORKERS) --dist worksteal

# Spark's tests are one process that mostly waits for others: it runs beside the workers. Those on
# DuckDB 1.5 run even if others failed.
test: runtime $(VENV15)/.duckdb
	@failed=; \
	$(MAKE) --jobs=2 --output-sync=target --keep-going test-duckdb test-spark || failed=1; \
	$(MAKE) test-duckdb-1.5 || failed=1; \
	test -z "$$failed"

test-duckdb: $(VENV)/.dev
	$(PY) $(PYTEST) $(PARALLEL) --ignore tests/spark

test-spark: $(VENV)/.dev
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || \
		echo "no Java: the tests of Spark are skipped (README.md says how to get it)"
	$(PY) $(PYTEST) tests/spark

test-duckdb-1.5: $(VENV15)/.duckdb
	$(VENV15)/bin/python $(PYTEST) $(PARALLEL) -m "version and not nightly" \
		$$(grep --recursive --files-with-matches --include='*.py' 'mark\.version' tests/unit tests/e2e)

nightly: runtime $(VENV15)/.duckdb $(TRITON)/.triton $(DBT)/.dbt $(CLICKHOUSE)/.chdb $(CLIENTS)/.clients
	$(MAKE) --keep-going nightly-duckdb nightly-triton nightly-dbt nightly-clickhouse nightly-clients nightly-duckdb-1.5 nightly-machines

# The tests of clients read what `nightly-clients` builds.
nightly-duckdb: $(VENV)/.zig
	$(PY) $(PYTEST) $(PARALLEL) -m nightly --ignore tests/clients

nightly-triton: $(TRITON)/.triton
	$(TRITON)/bin/python $(PYTEST) -m nightly tests/unit/backends/torch/test_fused.py \
		tests/unit/backends/native/runtime/test_build_runtime.py \
		tests/unit/backends/native/runtime/test_platform_libraries.py

nightly-dbt: $(DBT)/.dbt
	$(DBT)/bin/python $(PYTEST) tests/connectors/test_dbt.py

nightly-clickhouse: $(CLICKHOUSE)/.chdb
	$(CLICKHOUSE)/bin/python $(PYTEST) -m "nightly or not nightly" -k clickhouse tests/databases

# Shells for other platforms run where there are qemu and Wine (Debian: qemu-user-static,
# libstdc++6-arm64-cross, wine, wine64).
nightly-clients: runtime $(CLIENTS)/.clients
	$(PY) -m sqlml.backends.native.runtime $(EMULATED)
	for platform in $(EMULATED); do XDG_DATA_HOME=$(abspath $(CLIENTS))/data \
		$(PY) -m sqlml native --add build/runtimes/$$platform/sqlml.duckdb_extension || exit 1; done
	CLIENTS=$(CLIENTS) $(PY) $(PYTEST) -m nightly tests/clients

nightly-duckdb-1.5: $(VENV15)/.duckdb
	$(VENV15)/bin/python $(PYTEST) $(PARALLEL) -m "not version and not nightly or version and nightly" \
		tests/unit/catalog tests/unit/udfs tests/unit/planner tests/e2e --ignore tests/e2e/test_packaging.py

# The day's tests with other processors, threads, time zones, languages, homes and orders.
nightly-machines: $(VENV)/.dev
	$(PY) -m tests.support.machines --workers $(WORKERS) $(MACHINES)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

# One after the other, and all of them though one finds a wrong number.
bench: $(VENV)/.bench
	@failed=; for family in $(FAMILIES); do $(MAKE) bench-$$family || failed=1; done; test -z "$$failed"

$(FAMILIES:%=bench-%): bench-%: $(VENV)/.bench
	PYTHONPATH=$(HUMMINGBIRD) $(PY) -m benchmarks.$* $(OPTIONS) --write benchmarks/results/$*.json

# The kernels that an extension contains.
bench-kernels: $(VENV)/.bench
	$(PY) -m sqlml.backends.native.runtime

bench-exported: bench-kernels

bench-quick: $(VENV)/.openmp
	$(PY) -m benchmarks.end_to_end --rows 200000 --train 20000 --trees 100 --rounds 3 --memory-times 0 \
		--model "logistic regression" --model xgboost --model lightgbm $(OPTIONS)

bench-report: $(VENV)/.bench
	$(PY) -m benchmarks.plots
	$(PY) -m benchmarks.report

bench-passes: $(VENV)/.openmp
	$(PY) -m benchmarks.passes

bench-groups: $(VENV)/.openmp
	$(PY) -m benchmarks.groups --write benchmarks/results/groups.json

bench-compile: $(VENV)/.openmp
	$(PY) -m benchmarks.compile_time

bench-spark: $(VENV)/.bench
	$(PY) -m benchmarks.spark $(OPTIONS) --write benchmarks/results/spark.json

# It compiles only the kernels whose sources have changed.
runtime: $(VENV)/.dev
	$(PY) -m sqlml.backends.native.runtime

docs: $(VENV)/.dev
	$(PY) -m tests.contract.estimators.page --write

site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "built site/; '$(PY) -m http.server --directory site' serves it"

# The kernels of all levels of processors take minutes to compile, so nothing else builds them.
dist: $(VENV)/.zig
	SQLML_KERNELS=all $(PY) -m build --no-isolation --outdir dist

clean:
	rm -rf site $(VENV) $(VENV15) $(TRITON) $(DBT) $(CLICKHOUSE) $(CLIENTS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sqlml needs Python 3.11 or later; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# cryptography signs the runtime.
$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[demo]' cryptography
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

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[docs]'
	touch $@

$(VENV)/.bench: $(VENV)/.openmp
	$(PIP) --editable '.[bench]'
	$(PIP) --no-deps --upgrade --target $(HUMMINGBIRD) hummingbird-ml onnxconverter-common dill psutil
	$(PIP) --no-deps --upgrade --target $(VENV)/lleaves lleaves llvmlite==0.44.0
	touch $@

# A second environment at $(1), which holds the packages $(2) and finds everything else in the first.
define environment
	$(PYTHON) -m venv --without-pip $(1)
	site=$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade --no-deps \
		--target "$$site" $(2) && \
	$(PY) -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$site/first_environment.pth"
	touch $@
endef

$(VENV15)/.duckdb: $(VENV)/.dev
	$(call environment,$(VENV15),duckdb==$(DUCKDB15))

# Zig compiles for all platforms, with the oldest C library of each: 400 MB that only releases need.
$(VENV)/.zig: $(VENV)/.dev
	$(PIP) ziglang==0.17.1
	touch $@

# Triton has wheels for Linux alone; elsewhere its tests are skipped. LIEF reads files of all platforms.
$(TRITON)/.triton: $(VENV)/.zig
	$(call environment,$(TRITON),$(TRITON_WHEELS))

# ClickHouse as a package: half a gigabyte, for these tests alone.
$(CLICKHOUSE)/.chdb: $(VENV)/.dev
	$(call environment,$(CLICKHOUSE),chdb==4.4.0 chdb-core==26.9.0)

# The platforms whose exported models run here under emulators, or with a loader of the tests.
EMULATED := linux_arm64 osx_amd64 osx_arm64 windows_amd64

# Clients of DuckDB without sqlml, each in a folder of its own.
INTO := $(PY) -m pip install --no-compile --quiet --disable-pip-version-check --no-deps --target $(CLIENTS)
$(CLIENTS)/.clients: $(VENV)/.zig
	for version in 1.2.2 1.3.2 1.4.4 1.5.6 2.0.1; do $(INTO)/duckdb-$$version duckdb==$$version || exit 1; done
	for version in 1.4.4.post2 1.5.0 1.5.6; do $(INTO)/shell-$$version duckdb-cli==$$version || exit 1; done
	$(INTO)/arm64 --platform manylinux_2_17_aarch64 --only-binary=:all: duckdb-cli==1.5.6
	$(INTO)/windows --platform win_amd64 --only-binary=:all: duckdb-cli==1.5.6
	! command -v npm >/dev/null || npm install --silent --prefix $(CLIENTS)/node @duckdb/node-api@1.5.6-r.1
	touch $@

# dbt asks for versions that the tools of the first environment do not get along with.
$(DBT)/.dbt: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DBT)
	$(DBT)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dbt,train]' pytest
	touch $@
