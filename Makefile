# SPDX-License-Identifier: Apache-2.0
# weir: `make help` lists the targets. CI calls only these.
.DEFAULT_GOAL := help
.PHONY: help setup plugin module run run-tools run-weir run-regions test quick nightly busy rollout e2e chaos failover failover-keep regions search search-keep matrix soak mutants fuzz miri lint fmt bench bench-keep bench-lua bench-capacity measured-keep bench-core scale scale-keep dist playground site images clean distclean
MAKEFLAGS += --no-print-directory
# From here on, the scripts say how long it took.
export MAKE_BEGAN := $(shell date +%s)

help: ## List the targets
	@awk -F ':.*## ' '/^## / { print (NR > 9 ? "\n" : "") substr($$0, 4) } /^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## Use weir

run: ## Build weir, start Redis, Envoy and an upstream, and stop them at Ctrl-C; PORT=10000 HOST=wasm|native
	@PORT=$(PORT) HOST=$(HOST) scripts/run check
	@scripts/setup $(if $(filter native,$(HOST)),module,plugin)
	@$(MAKE) -j2 run-tools run-weir
	@PORT=$(PORT) HOST=$(HOST) scripts/run

# Envoy and Redis come from the network while weir is compiled. Cargo must not wait for places of this `make`.
run-tools:
	@scripts/setup run
run-weir:
	@MAKEFLAGS= scripts/$(if $(filter native,$(HOST)),native,plugin run)

run-regions: ## Start the three regions of examples/regions, and show each second what each admits; WAY=share|debit|home FOR=60
	@WAY=$(WAY) FOR=$(FOR) scripts/run-regions check
	@scripts/setup run
	@scripts/plugin
	@WAY=$(WAY) FOR=$(FOR) scripts/run-regions

plugin: ## Build target/weir.wasm
	@scripts/setup plugin
	@scripts/plugin

module: ## Build target/libweir.so, weir as a dynamic module of Envoy
	@scripts/setup module
	@scripts/native

dist: ## Build what is handed to users, in target/dist: plugin, module, static command, images, bill of materials; ARGS=files only plugin, command and schema, ARGS=check builds twice, ARGS=try starts its compose.yaml
	@scripts/setup $(if $(filter files,$(ARGS)),plugin,dist)
	@scripts/dist $(ARGS)

playground: ## Build target/playground.html: one page in which the core runs, without a server
	@scripts/setup playground
	@scripts/playground

site: ## Build the documentation as a site with search, in target/site; the playground is a page of it
	@scripts/setup site
	@scripts/playground
	@scripts/site

images: ## Build container images of this machine's Envoy and Redis, if no registry can be reached
	@scripts/setup images
	@scripts/images build

## Develop it

setup: ## Install everything that the tests and lints need
	@scripts/setup

quick: ## After a change of src: the core, the tables on Redis, a dozen requests through a real Envoy; at most a minute
	@scripts/setup quick
	@scripts/test quick

test: ## Test every rule once, on both hosts in a real Envoy: at most ten minutes; the last line is the tally
	@scripts/setup test
	@scripts/test

lint: ## Check formatting, Rust, Lua, shell, documentation and the Envoy configurations
	@scripts/setup lint
	@scripts/lint

fmt: ## Format the Rust
	@cargo fmt --all

e2e: ## Run only the tests in a real Envoy on real stores, and in containers if Docker answers; HOST=wasm|native
	@scripts/setup e2e
	@scripts/plugin
	@scripts/native
	@WEIR_HOST=$(or $(HOST),wasm) scripts/test e2e

fuzz: ## Search for inputs that break what reads others' bytes, guided by coverage; MINUTES=10 for each; TARGETS='resp body'; KEEP=1 for more seeds
	@scripts/setup fuzz
	@MINUTES=$(MINUTES) KEEP=$(KEEP) TARGETS='$(TARGETS)' scripts/fuzz

mutants: ## Change in one place at a time what the last change touches, Rust or Lua, and list what no test notices; BASE=COMMIT
	@scripts/setup mutants
	@BASE=$(BASE) scripts/mutants

rollout: ## Run this version and an older one in two Envoys on one Redis; OLDER=COMMIT or tag; HOST=wasm|native
	@scripts/setup e2e
	@scripts/$(if $(filter native,$(HOST)),native,plugin)
	@WEIR_HOST=$(or $(HOST),wasm) scripts/rollout '$(OLDER)'

clean: ## Remove target/
	@rm -rf target

distclean: clean ## Remove target/ and what setup installed in .tools/
	@rm -rf .tools

## Prove what it promises

nightly: ## Test everything in full: larger sizes, all cases on both hosts, time judged, WebAssembly, Miri, versions of Envoy; some hours
	@scripts/setup nightly
	@scripts/test nightly

busy: ## Run `make test` beside processes that burn the cores, and one that stops all tests for two seconds now and then; TIMES=3; ONLY=envoys
	@scripts/setup test
	@TIMES=$(TIMES) scripts/busy scripts/test $(ONLY)

chaos: ## Inject faults into Envoy, Redis and the network under load, judge times too; HOST=wasm|native; writes target/chaos/summary.json
	@scripts/setup e2e
	@scripts/plugin
	@scripts/native
	@WEIR_HOST=$(or $(HOST),wasm) scripts/test chaos

regions: ## Put load on three regions with delay, jitter, loss, cuts and lost stores; HOST=wasm|native; writes target/regions/summary.json
	@scripts/setup e2e
	@scripts/plugin
	@scripts/native
	@WEIR_HOST=$(or $(HOST),wasm) scripts/test regions

failover: ## Kill a primary, and cut one off, 30 times each under load, and count what is forgotten; HOST=wasm|native; writes target/failover/HOST.json
	@scripts/setup e2e
	@scripts/plugin
	@scripts/native
	@WEIR_HOST=$(or $(HOST),wasm) scripts/test failover

failover-keep: ## Copy the results of `make failover` to docs/stores, and show them in docs/stores.md
	@mkdir -p docs/stores && cp target/failover/*.json docs/stores/
	@WEIR_UPDATE=1 cargo test --quiet --test repository -- failover

search: ## Try every order of events in the protocols that move units, at small sizes: some minutes; writes target/search/summary.json; SECONDS_EACH=60 for each row at most
	@SECONDS_EACH=$(SECONDS_EACH) cargo run --quiet --profile native --example search

search-keep: ## Copy the figures of `make search` to docs/bounds.md
	@cp target/search/summary.json docs/bounds/search.json
	@WEIR_UPDATE=1 cargo test --quiet --test repository -- searched

matrix: ## Run cases of `make e2e` on several versions of Envoy, in both hosts; ENVOY_VERSIONS='1.39.0 1.40.0' CASES=short|all; KEEP=1 writes the table into docs/compatibility.md
	@ENVOY_VERSIONS='$(ENVOY_VERSIONS)' scripts/setup matrix
	@scripts/plugin
	@scripts/native
	@ENVOY_VERSIONS='$(ENVOY_VERSIONS)' CASES=$(CASES) KEEP=$(KEEP) scripts/matrix

soak: ## Test that nothing grows with time, and every property on new random cases in each round; MINUTES=10
	@scripts/setup test
	@scripts/plugin
	@scripts/native
	@MINUTES=$(MINUTES) scripts/test soak

miri: ## Run the dynamic module's own logic under Miri, in an Envoy that enters it again and frees what it may; skipped without Miri
	@scripts/setup miri
	@scripts/miri

bench: ## Measure weir in both hosts, beside plain Envoy and nginx with Lua: twelve minutes on an idle machine; ROUNDS=12
	@scripts/setup bench
	@scripts/plugin
	@scripts/native
	@cargo build --quiet --package weir-native-empty --profile native
	@eval "$$(scripts/env)" && cargo bench --quiet --bench edge -- $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

bench-keep: ## Copy the results of `make bench` to docs/bench, where the README shows them
	@cp $(addprefix target/bench/,table.txt summary.json cpu.svg latency.svg) docs/bench/
	@WEIR_UPDATE=1 cargo test --quiet --test repository -- figures measured

bench-lua: ## Measure the Lua scripts on a real Redis
	@scripts/setup run
	@eval "$$(scripts/env)" && cargo bench --bench lua

bench-capacity: ## Measure what Redis needs for each subject and check, and Envoy to start; writes target/capacity/summary.json
	@scripts/setup run
	@scripts/plugin
	@scripts/native
	@eval "$$(scripts/env)" && cargo bench --quiet --bench capacity

measured-keep: ## Copy what `make bench-capacity`, `make bench-lua` and `make bench-core CASES='redis COMMIT'` have measured to the documents
	@for pair in capacity/summary.json=sizing/capacity.json bench/lua_worst.json=bounds/worst.json bench/lua_instructions.json=bench/redis.json; do \
	  [ ! -f "target/$${pair%%=*}" ] || cp "target/$${pair%%=*}" "docs/$${pair#*=}"; done
	@WEIR_UPDATE=1 cargo test --quiet --test repository -- measured

bench-core: ## Count the instructions of the core's steps with callgrind; CASES='exact denied', or CASES='redis COMMIT' for those of Redis
	@scripts/setup bench_core
	@scripts/bench-core $(CASES)

scale: ## Simulate up to 10,000 workers and 64 nodes of Redis with real engines; ARGS= for up to 1,000 workers; writes target/scale/summary.json
	@cargo bench --quiet --bench scale -- $(if $(filter undefined,$(origin ARGS)),--long,$(ARGS))

scale-keep: ## Copy the results of `make scale` to docs/scale, and show them in docs/scale.md and docs/proofs.md
	@cp target/scale/summary.json docs/scale/
	@WEIR_UPDATE=1 cargo test --quiet --test repository -- scale figures
