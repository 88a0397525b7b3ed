# One command each; all set-up happens by itself, once, in .venv.
PYTHON ?= $(firstword $(foreach p,python3 python3.11 python3.12 python3.13,$(shell \
  $(p) -c 'import sys; sys.version_info >= (3, 11) and print("$(p)")' 2> /dev/null)))
BIN := .venv/bin
BASE ?= debian:bookworm-slim
TAG ?= errata:dev
KAFKA_TAG ?= errata-kafka:dev
QUIET := $(shell [ -t 1 ] || echo --quiet)

# Tests start hundreds of processes: modules that are compiled once save a fifth of each start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint docs mutants faults hostile bench bench-peers bench-latency bench-scale bench-history bench-propagation bench-sliding bench-page bench-spark bench-spark-state study kills-spark live-state image kafka-image image-facts newcomer screenshots vendor clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/ready ## the main job on real data: a real broker, both modes, an audit
	@$(BIN)/errata demo $(if $(FAST),--fast) $(ARGS)

test: lint docs ## everything that CI runs
	@$(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4 --dist loadfile \
	  --no-loadscope-reorder -m "not slow" $(ARGS)

test-slow: .venv/ready ## the tests that take minutes, and more seeds and cases of others
	@$(BIN)/python -m pytest -q -m slow $(ARGS)

lint: .venv/ready ## style, types, layers
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .cache/lint-imports.log || { cat .cache/lint-imports.log; exit 1; }

docs: .venv/ready ## the docs site, in .cache/site; a broken link or reference fails it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > .cache/docs.log 2>&1 \
	  || { grep -v '^INFO' .cache/docs.log; exit 1; }

mutants: .venv/ready ## plant many bugs, one at a time: a law must kill each (SHARE=1/4: every fourth)
	@$(BIN)/python -m tests.mutants.run $(if $(SHARE),--share $(SHARE)) $(ARGS)

faults: .venv/ready ## a network under load and faults of every kind, compared with a recomputation (ARGS="--seeds 4")
	@$(BIN)/python -m tests.faults.run $(ARGS)

hostile: .venv/ready ## hostile records for every topic: each is refused or ignored, and nothing else (ARGS="--records 100000")
	@$(BIN)/python -m tests.faults.hostile $(ARGS)

bench: .venv/ready ## a million trades through the demo's query, beside raw Kafka
	@$(BIN)/python -m bench.run $(ARGS)

bench-peers: .venv/ready ## the same in Kafka Streams, plain Spark and Pathway, where it installs
	@$(BIN)/python -m bench.peers.run $(ARGS)

bench-latency: .venv/ready ## how long after a correction its revised results come
	@$(BIN)/python -m bench.latency $(ARGS)

bench-scale: .venv/ready ## what a million trades cost over 1 to 16 partitions and 1 to 8 processes
	@$(BIN)/python -m bench.partitions $(ARGS)

bench-history: .venv/ready ## what one correction costs while history grows (ARGS="--most 1e8")
	@$(BIN)/python -m bench.history $(ARGS)

bench-sliding: .venv/ready ## what a tuple costs in sliding windows of 10 to a million tuples
	@$(BIN)/python -m bench.sliding $(ARGS)

bench-page: .venv/ready ## what the page costs with 1,000 tasks and 10,000 corrections a minute
	@$(BIN)/python -m bench.page $(ARGS)

bench-spark: .venv/ready ## an aggregate on Spark with 100,000 groups, beside plain Spark
	@$(BIN)/python -m bench.spark $(ARGS)

bench-spark-state: .venv/ready ## what states of a million groups cost on Spark, batch by batch (ARGS="--beside plain process")
	@$(BIN)/python -m bench.spark_state $(ARGS)

kills-spark: .venv/ready ## kill drivers and executors of a Spark cluster twenty times: nothing may change
	@$(BIN)/python -m tests.spark_jobs.kills $(ARGS)

study: .venv/ready ## what revisions cost in each mode, with the tables and pictures of docs/study.md
	@$(BIN)/errata study --out docs/study $(ARGS)

bench-propagation: .venv/ready ## what each order of running a scope's boxes costs, counted
	@$(BIN)/python -m bench.propagation $(ARGS)

live-state: .venv/ready ## rows in memory while history grows a hundredfold, as a picture
	@$(BIN)/python -m bench.live_state $(ARGS)

image: ## one container image for every role; BASE= and TAG= name others
	@docker build $(QUIET) --network host --build-arg BASE=$(BASE) -t $(TAG) -f docker/Dockerfile .

kafka-image: ## Kafka's, made from that one, where apache/kafka can't be had; KAFKA_TAG= names another
	@docker build $(QUIET) --network host --build-arg BASE=$(BASE) --build-arg ERRATA=$(TAG) \
	  -t $(KAFKA_TAG) -f docker/kafka/Dockerfile .

image-facts: .venv/ready ## sizes of the images, and how long each role takes until it is ready
	@$(BIN)/python -m tests.containers.facts

newcomer: .venv/ready ## follow the README from a clone to the first correction, and time it
	@$(BIN)/python -m tests.newcomer

screenshots: .venv/ready ## the pictures of docs/page.md, from the demo in a real browser
	@$(BIN)/python -m tests.errata.page.screenshots

vendor: .venv/ready ## the page's libraries from their npm packages, at pinned hashes
	@$(BIN)/python -m tests.errata.page.vendored

clean: ## remove what make has made
	@rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info

.venv/ready: requirements.txt pyproject.toml
	@[ "$(PYTHON)" ] || { echo "errata needs Python 3.11 or later: PYTHON=... make" >&2; exit 1; }
	@echo "setting up .venv (once; a few minutes) ..."
	@mkdir -p .cache
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
