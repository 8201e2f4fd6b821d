# `make` without a target lists the targets.

CARGO ?= cargo
# Debian installs kamailio into /usr/sbin, and rustup installs cargo into ~/.cargo/bin.
export PATH := $(PATH):/usr/sbin:$(HOME)/.cargo/bin
# The end-to-end tests spend most of their time waiting. On two cores, four at a time take half as
# long as two at a time.
export RUST_TEST_THREADS ?= 4

# A link in a comment must name an item that exists.
DOC = RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
	$(CARGO) doc --workspace --no-deps --document-private-items --quiet

.DEFAULT_GOAL := help
.PHONY: help setup build install deb programs demo run test check python requirements swarm reproduce bench release

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@scripts/show

setup: ## install what is missing on Debian 12 (the other targets do it when needed)
	@scripts/setup all

build: ## build the programs, target/release/tidegate and tidegate-lab; PGO=1: with a profile of calls
	@scripts/setup build
	@$(if $(PGO),scripts/build-profiled,$(CARGO) build --release --package tidegate)

PREFIX ?= /usr/local
install: build ## install programs, manual pages and completions below PREFIX (/usr/local)
	@scripts/install "$(DESTDIR)$(PREFIX)"

deb: build ## make Debian packages in out/packages
	@scripts/setup deb
	@scripts/package

# The programs for tests and demonstrations. They are optimised as well, have assertions, and take
# less time to build than `build`.
programs:
	@scripts/setup build
	@$(CARGO) build --package tidegate

demo: programs ## see in a minute what overload does to a server, and what protection does
	@$(or $(CARGO_TARGET_DIR),target)/debug/tidegate demo $(DEMO)

run: programs ## run Tidegate with two back ends and a few calls a second, until Ctrl-C
	@scripts/run-sample

python: ## lint, check the types of and test the Python package in bench/ (part of `check` and `test`)
	@scripts/setup check
	cd bench && ../out/python/bin/ruff check --quiet
	cd bench && ../out/python/bin/ruff format --check --quiet
	cd bench && ../out/python/bin/mypy
	cd bench && python3 -m unittest

test: python ## formatting, lints and all tests, the end-to-end ones with real peers included
	@scripts/setup test
	$(CARGO) fmt --check
	@scripts/structure --check
	@scripts/language --check
	@scripts/requirements --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(DOC)
	tests/sipp/pairs
	$(CARGO) test --workspace --lib --bins --tests
	$(CARGO) test --workspace --doc
	@$(or $(CARGO_TARGET_DIR),target)/debug/tidegate-lab reproduce --quick

check: python ## the fast part of `make test`, for every commit
	@scripts/setup check
	@scripts/structure --check
	@scripts/language --check
	@scripts/requirements --check
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(DOC)
	$(CARGO) test --workspace --lib

requirements: ## print which MUST and SHOULD of the RFCs are quoted above code and a test
	@scripts/requirements

swarm: programs ## draw worlds from seeds and check what must always hold, until stopped; SWARM="..."
	@$(or $(CARGO_TARGET_DIR),target)/debug/tidegate lab swarm $(SWARM)

reproduce: release ## run every claim of the papers and write docs/reproduction.md (an hour); REPRODUCE="..."
	@$(or $(CARGO_TARGET_DIR),target)/release/tidegate-lab reproduce $(REPRODUCE)

bench: release ## instructions a message; CPU a call beside a relay and Kamailio (half an hour); BENCH="..."
	@scripts/setup bench
	bench/instructions
	bench/steady --rates 2000,10000 --elements transaction,stateless,relay,forward,t_relay $(BENCH)

release: build
	@$(CARGO) build --release --package tidegate-io --examples

# These demonstrations run release programs. Without this line they would run those of an older
# build.
show-rejection show-predict show-quota show-disposal show-tiers show-costs show-fairness \
	show-counters show-farm show-dispatch show-default show-registrations show-idle \
	show-transports show-inference show-obedient show-pushback show-receiver show-joining \
	show-shares: release
show-speed: simulations
show-growth: growth

.PHONY: simulations
simulations:
	@scripts/setup build
	$(CARGO) build --release --package tidegate-sim --examples

.PHONY: growth
growth:
	@scripts/setup build
	$(CARGO) build --release --package tidegate-proxy --example growth

# Only this target needs a browser.
show-report: programs
	@scripts/setup report
	@scripts/show-report $(SHOW)

# Only this target needs JsSIP.
show-browser: programs
	@scripts/setup browser
	@scripts/show-browser $(SHOW)

show-parallel: programs
	@scripts/setup parallel
	@scripts/show-parallel $(SHOW)

# Only this target needs Asterisk.
show-cookbook: programs
	@scripts/setup cookbook
	@scripts/show-cookbook $(SHOW)

# Only this target sets up an address translator.
show-nat: programs
	@scripts/setup nat
	@scripts/show-nat $(SHOW)

# This target tests the Debian packages.
show-package: deb
	@scripts/setup package
	@scripts/show-package $(SHOW)

show-%: programs
	@scripts/setup show
	@scripts/show-$* $(SHOW)
