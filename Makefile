# Every target has its line of help after "##"; `make` prints them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sidecarjob
# Servers and Python readers that the tests use; `make tools` fills both folders.
export SIDECARJOB_TOOLS ?= $(CACHE)/tools/bin
export SIDECARJOB_VENV ?= $(CACHE)/venv
# Test data and benchmark peers made by others. Tests that need them say so and are skipped without.
ifneq ($(wildcard ../shared/corpora),)
export SIDECARJOB_CORPORA ?= $(abspath ../shared/corpora)
endif
ifneq ($(wildcard ../shared/baseline),)
export SIDECARJOB_BASELINE ?= $(abspath ../shared/baseline)
endif

# What started a cluster ends it, without a build.
TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT_CLUSTER := $(firstword $(wildcard $(TARGET)/demo/cluster $(TARGET)/debug/cluster))

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Make a dataset, enrich it, verify it, print joined rows (needs Rust alone)
	@examples/demo.sh

.PHONY: test
test: tools lint suite ## Lint, then every test; what had to be skipped is listed and counted

.PHONY: suite
suite:
	@tests/tools/test.sh

# What a cluster is made of; the rest of the tools is for tests.
CLUSTER_TOOLS := versitygw etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl

.PHONY: cluster-tools
cluster-tools:
	@tests/tools/build.sh $(CLUSTER_TOOLS)

.PHONY: cluster
cluster: cluster-tools ## A Kubernetes cluster on this machine, with an S3 server (root, containerd, runc)
	@cargo run --quiet --locked --bin cluster -- up

.PHONY: cluster-demo
cluster-demo: cluster-tools ## On that cluster: kubectl apply, a live view of the run, events, metrics, joined rows
	@examples/cluster_demo.sh

.PHONY: cluster-down
cluster-down: ## End that cluster; nothing of it stays
	@$(or $(BUILT_CLUSTER),cargo run --quiet --locked --bin cluster --) down

.PHONY: soak
soak: tools ## 50 idle SidecarJobs for five minutes: the operator writes nothing, and hardly uses the CPU
	SIDECARJOB_SOAK_SECONDS=300 cargo test --locked --workspace --test operator_api -- --nocapture idle

.PHONY: scale
scale: tools ## 10,000 indexes, and 100,000 shards of which 5,000 fail, on pretended nodes (half an hour)
	SIDECARJOB_SCALE=10000 cargo test --locked --workspace --test operator_api -- --nocapture scale

.PHONY: images
images: ## Both container images by the Dockerfile (docker or buildah, and the network)
	@builder=$$(command -v docker || command -v buildah) || { echo "images: neither docker nor buildah is there" >&2; exit 1; }; \
	for target in operator:sidecarjob-operator shard-worker:sidecarjob-worker; do \
	  "$$builder" build --target "$${target%%:*}" --tag "$${target##*:}:0.1.0" .; \
	done

.PHONY: bench
bench: venv ## Measure against pyarrow, Polars and DuckDB on the same data in the same run
	@"$(SIDECARJOB_VENV)/bin/python" tests/bench/bench.py

.PHONY: tools
tools: venv ## Build the pinned test servers (Go) and the Python environment, once
	@tests/tools/build.sh || [ -z "$${SIDECARJOB_STRICT:-}" ]

.PHONY: venv
venv:
	@tests/tools/venv.sh || [ -z "$${SIDECARJOB_STRICT:-}" ]

.PHONY: crds
crds: ## Regenerate crds/sidecarjobs.yaml and docs/api.md from the Rust types
	mkdir -p target docs
	cargo run --quiet --locked --bin crdgen >target/sidecarjobs.yaml
	cargo run --quiet --locked --bin apidoc >target/api.md
	mv target/sidecarjobs.yaml crds/sidecarjobs.yaml
	mv target/api.md docs/api.md

.PHONY: lint
lint: ## Formatting, clippy without a warning, licences of all dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	@python3 tests/tools/licences.py

.PHONY: deny
deny: ## cargo-deny: licences, bans, sources, advisories (builds cargo-deny once: minutes)
	@tests/tools/deny.sh

.PHONY: clean
clean: ## Remove build output and demo data (caches outside the checkout stay)
	cargo clean
	rm -rf demo-data
