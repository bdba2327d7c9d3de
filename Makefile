# The one entrance for people who build idlewise. `make help` lists what there is.
#
# Everything works as the first command on a fresh Debian machine with a Rust toolchain: what a
# target needs from the system it installs by `make setup` where it may, and says so where not.

CARGO ?= cargo
IDLEWISE = $(CARGO) run --quiet --release --package idlewise-cli --

# What building needs besides Rust: a C compiler, for zstd and xz. Tests and the benchmark also have
# perf and trace-cmd read recordings, and protoc read what we export.
BUILD_PACKAGES = gcc libc6-dev
PACKAGES = $(BUILD_PACKAGES) linux-perf trace-cmd xz-utils protobuf-compiler

# The modules' tests also need QEMU and the headers of Debian's kernels (6.12's from backports).
KERNEL_PACKAGES = $(BUILD_PACKAGES) qemu-system-x86 busybox-static cpio kmod make xz-utils \
	linux-headers-amd64
KERNEL_BACKPORTS = linux-headers-6.12-amd64

.DEFAULT_GOAL := help
.PHONY: help setup toolchain demo test lint unit-test front-door golden bench conformance conformance-short fuzz test-kernel

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

setup: toolchain ## install what tests need, the pinned Rust and Debian packages, where we may
	@./scripts/setup $(PACKAGES)

toolchain:
	@./scripts/toolchain

demo: toolchain ## the main job on the bundled recordings: import one, then replay all
	@./scripts/setup $(BUILD_PACKAGES)
	@$(CARGO) build --release --package idlewise-cli
	@echo '$$ idlewise import traces/s-softirq500.perf.data.xz --output target/s-softirq500.parquet'
	@mkdir -p target
	@$(IDLEWISE) import traces/s-softirq500.perf.data.xz --output target/s-softirq500.parquet --force
	@echo
	@echo '$$ idlewise replay'
	@$(IDLEWISE) replay

test: setup lint unit-test front-door conformance-short ## everything that CI runs

lint: ## formatting, clippy, licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check licenses bans sources; \
	else echo 'SKIPPED: cargo deny is not installed (cargo install cargo-deny); licences were not checked'; fi

unit-test: ## unit, property, golden and end-to-end tests
	$(CARGO) test --workspace

front-door: ## run the README's first command and look at what it prints
	@command=$$(sed -n '/^```sh$$/{n;p;q}' README.md); echo "README: $$command"; \
	$$command | grep 'comes nearest to the oracle' && echo 'README: it prints what it promises'

test-kernel: ## the kernel modules in real kernels, in QEMU
	@./scripts/setup $(KERNEL_PACKAGES)
	@./scripts/setup $(KERNEL_BACKPORTS)
	@./kernel/tests/run

# Kernels' own governors, taken from Debian's source packages.
KERNEL_SOURCES = target/kernel-sources

conformance: toolchain ## our ports against the C files of Debian's kernels, and against logged decisions
	@./scripts/kernel-sources $(KERNEL_SOURCES)
	$(IDLEWISE) verify-sources $(KERNEL_SOURCES)/6.*/
	$(IDLEWISE) verify-decisions conformance/decisions/*.csv.xz

# Where the packages can't be had, the script has said so and the rest is skipped.
conformance-short: toolchain ## the same on fewer decisions
	@if ./scripts/kernel-sources $(KERNEL_SOURCES); then \
	$(IDLEWISE) verify-sources --decisions 500000 $(KERNEL_SOURCES)/6.*/; fi

# Twice, because the bundled logs are part of the binary whose output is expected.
golden: toolchain ## rewrite expected outputs and generated documents; review the diff
	IDLEWISE_GOLDEN=rewrite $(CARGO) test --quiet --package idlewise-cli --test golden
	IDLEWISE_GOLDEN=rewrite $(CARGO) test --quiet --package idlewise-cli --test golden

bench: setup ## speed and memory, side by side with other tools, as figures (asserts nothing)
	$(CARGO) bench --package idlewise-cli --bench figures

fuzz: ## ten minutes of fuzzing for each parser (needs a nightly toolchain and cargo-fuzz)
	@for crate in trace sim; do cd $(CURDIR)/crates/idlewise-$$crate && \
	for target in $$($(CARGO) +nightly fuzz list); do \
	$(CARGO) +nightly fuzz run $$target -- -max_total_time=600 -rss_limit_mb=2048 || exit 1; done; done
