# The only entry point for people who build idlewise. `make help` lists the targets.
#
# Every target works as the first command on a fresh Debian machine with a Rust toolchain. `make setup` installs
# the system packages a target needs, if it may, and otherwise says what is missing.

CARGO ?= cargo
IDLEWISE = $(CARGO) run --quiet --release --package idlewise-cli --
# Built faster than it runs: for the demo.
DEMO = $(CARGO) run --quiet --profile demo --package idlewise-cli --

# What building needs besides Rust: a C compiler, for zstd and xz. Tests and the benchmark also use perf and
# trace-cmd to read recordings, and protoc to read exports. AArch64 is cross-compiled and run in an emulator.
BUILD_PACKAGES = gcc libc6-dev
ARM_PACKAGES = $(BUILD_PACKAGES) qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
PACKAGES = $(ARM_PACKAGES) binutils linux-perf trace-cmd xz-utils protobuf-compiler

# The modules' tests also need QEMU and the headers of Debian's kernels (6.12's from backports).
KERNEL_PACKAGES = $(BUILD_PACKAGES) qemu-system-x86 busybox-static cpio kmod make sparse xz-utils \
	linux-headers-amd64 dkms lintian patch python3
KERNEL_BACKPORTS = linux-headers-6.12-amd64
# Kernels that we build ourselves.
KERNEL_BUILD_PACKAGES = flex bison bc libelf-dev libssl-dev
KERNEL_DEBUG_PACKAGES = $(KERNEL_BUILD_PACKAGES) linux-source-6.1
KERNEL_DEBUG_BACKPORTS = linux-source-6.12

CPU_PACKAGES = qemu-system-x86 busybox-static cpio kmod xz-utils locales

.DEFAULT_GOAL := help
.PHONY: help install book deb package setup toolchain demo test lint unit-test front-door golden studies bench conformance conformance-short fuzz mutants test-kernel test-kernel-newest test-kernel-debug test-cpus \
	loom loom-bounded miri tsan stress stress-short test-arm bare-metal other-systems msrv

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

PREFIX ?= /usr/local
DESTDIR ?=

install: toolchain ## build and install the command, its manual pages and shell completions (PREFIX, DESTDIR)
	@./scripts/setup $(BUILD_PACKAGES)
	@$(CARGO) build --release --package idlewise-cli
	@binary="$${CARGO_TARGET_DIR:-target}/release/idlewise"; to='$(DESTDIR)$(PREFIX)'; set -e; \
	all=$$(mktemp -d); trap 'rm -rf "$$all"' EXIT; \
	./scripts/stage "$$all" "$$binary"; \
	place="$$to/bin"; until [ -e "$$place" ]; do place=$$(dirname "$$place"); done; \
	as=; [ -w "$$place" ] || { as=sudo; echo "only root may write to $$place: asking sudo"; }; \
	$$as mkdir -p "$$to"; $$as cp -R "$$all/bin" "$$all/share" "$$to/"; \
	echo "installed into $$to: bin/idlewise, share/man/man1/idlewise*.1, completions for bash, zsh and fish"

# Not for crates.io: libraries for C and for LD_PRELOAD, which `cargo install` does not install, a benchmark, and the
# Python package.
UNPUBLISHED = idlewise-park-bench idlewise-park-c idlewise-preload idlewise-python
PUBLISHED = --workspace $(addprefix --exclude ,$(UNPUBLISHED))

package: toolchain ## pack every crate that is published as crates.io takes it, in target/package
	@rm -rf "$${CARGO_TARGET_DIR:-target}/package"
	$(CARGO) package --quiet --no-verify --allow-dirty $(PUBLISHED)
	@ls -sh "$${CARGO_TARGET_DIR:-target}"/package/*.crate

# Run by hand and for a release: it builds everything once more.
.PHONY: test-package
test-package: package ## install the command from those packages alone, and compare it with the one built here
	@./scripts/setup $(BUILD_PACKAGES)
	@$(CARGO) build --quiet --package idlewise-cli
	@./scripts/test-package

.PHONY: publish
publish: toolchain ## publish to crates.io every crate that is not there in this version (needs a token; PUBLISH=--dry-run)
	@./scripts/publish $(PUBLISH) $(PUBLISHED)

.PHONY: test-tag
test-tag: ## whether this may be released as TAG: v0.1.0, say, with the version and a dated section of CHANGELOG.md
	@grep -qx 'version = "$(TAG:v%=%)"' Cargo.toml || { echo 'test-tag: $(TAG) is not the version in Cargo.toml'; exit 1; }
	@grep -q '^## $(TAG:v%=%) - 20' CHANGELOG.md || { echo 'test-tag: CHANGELOG.md has no date for $(TAG)'; exit 1; }

# Each part of `make test` must be in CI. actionlint is built by Go.
ACTIONLINT = v1.7.12

.PHONY: test-workflows
test-workflows: ## the workflows in .github, by actionlint (Go, or actionlint itself)
	@for part in $(TEST_PARTS); do grep -q "^ *- .*\b$$part\b" .github/workflows/ci.yml || \
	{ echo "test-workflows: .github/workflows/ci.yml does not run $$part"; exit 1; }; done
	@if command -v actionlint >/dev/null; then actionlint; \
	elif command -v go >/dev/null; then go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT); \
	else echo 'SKIPPED: workflows: actionlint is missing, and Go, which builds it'; fi

# There is no release yet, so nothing is promised: compare with the commit that you build on, or with SEMVER_BASE=commit.
# Installing the tool takes ten minutes.
SEMVER_BASE = HEAD~1

.PHONY: semver
semver: toolchain ## what a change breaks in the libraries' public interfaces: SEMVER_BASE=commit
	@./scripts/tool cargo-semver-checks 0.51.0
	@PATH="$${CARGO_TARGET_DIR:-target}/tools/bin:$$PATH" cargo semver-checks \
	    --baseline-rev $(SEMVER_BASE) $(addprefix --package ,$(LIBRARIES))

.PHONY: lines arrows
lines: ## lines of code of each crate, without tests, comments and blank lines
	@./scripts/lines

arrows: ## which crates use which, and the circles of modules inside them; fails if there are any
	@./scripts/arrows --crates

book: toolchain ## the guide as HTML, in target/book
	@./scripts/setup python3
	@./scripts/tool mdbook 0.5.4 --features search
	@PATH="$${CARGO_TARGET_DIR:-target}/tools/bin:$$PATH" mdbook build docs

# Run by hand and for a release: four builds of the command and two of the Python package, an hour on two CPUs, and
# downloads of 300 MB. The parts: binaries packages wheels sources. TRIPLES='x86_64-unknown-linux-gnu' builds for that only.
DIST_PACKAGES = binutils debhelper dpkg-dev fakeroot git python3-venv rpm xz-utils
DIST =
.PHONY: dist test-dist
dist: toolchain ## what a release consists of, in target/dist: archives, Debian packages, RPMs, wheels, an SBOM; DIST='binaries packages'
	@./scripts/setup $(BUILD_PACKAGES) $(DIST_PACKAGES)
	@./scripts/dist $(DIST)

# PLACES='empty trixie' selects some.
test-dist: ## install that into empty folders and fresh Debians, x86-64 and AArch64, use it, and remove it (root, downloads)
	@./scripts/setup debootstrap lintian qemu-user-static rpm
	@./scripts/test-dist $(PLACES)

deb: ## a Debian package of the command for this machine, in target/dist
	@$(MAKE) --no-print-directory dist DIST='binaries packages' TRIPLES="$$(uname -m)-unknown-linux-gnu"

setup: toolchain ## install what tests need, the pinned Rust and Debian packages, where we may
	@./scripts/setup $(PACKAGES)

toolchain:
	@./scripts/toolchain

demo: toolchain ## the main job on the bundled recordings: import one, then replay all
	@./scripts/setup $(BUILD_PACKAGES)
	@$(CARGO) build --profile demo --package idlewise-cli
	@echo '$$ idlewise log import traces/s-softirq500.perf.data.xz --output target/s-softirq500.parquet'
	@mkdir -p target
	@$(DEMO) log import traces/s-softirq500.perf.data.xz --output target/s-softirq500.parquet --force
	@echo
	@echo '$$ idlewise replay'
	@$(DEMO) replay

# Every part runs, whether or not the others fail. Parts that come first take longest.
TEST_PARTS = lint unit-test test-kernel test-python test-page stress-short loom-bounded bare-metal other-systems msrv test-arm front-door conformance-short
# How many parts run at once: with two, one computes while the other waits for downloads, disks or time to pass.
TEST_JOBS = 1

test: setup ## everything that CI runs, and at its end a list of what was skipped and why; TEST_JOBS=2 runs two parts at once
	@./scripts/skips sh -c 'echo $(TEST_PARTS) | xargs -n 1 -P $(TEST_JOBS) $(MAKE) --no-print-directory'

.PHONY: wheel
wheel: toolchain ## the Python package for this architecture, and its source package, in target/wheels
	@./scripts/setup $(BUILD_PACKAGES) python3-venv
	@./scripts/wheels "$$(uname -m)"

# Run by hand only: each architecture takes up to 15 minutes on two CPUs, and zig is a download of 100 MB.
.PHONY: wheels
wheels: toolchain ## the Python package for x86-64 and AArch64, and its source package, in target/wheels
	@./scripts/setup $(BUILD_PACKAGES) python3-venv
	@./scripts/wheels x86_64 aarch64

.PHONY: test-wheels
test-wheels: toolchain ## what `make wheel` or `make wheels` built: checked as PyPI does, installed from the wheel and from the source package
	@./scripts/setup $(BUILD_PACKAGES) python3-venv
	@./scripts/test-wheels

# What `cargo test --workspace` runs, and the command beside it, with buckets. Targets that need the command in CI take that
# one, because cargo compiles shared dependencies once more for every other choice of packages.
BUILD_TESTED = $(CARGO) test --quiet --workspace --no-run
TESTED = $$(realpath "$${CARGO_TARGET_DIR:-target}")/debug/idlewise

.PHONY: test-python
test-python: toolchain ## the Python package: built, installed into a fresh environment, tested and type-checked
	@./scripts/setup $(BUILD_PACKAGES) python3-venv
	@$(BUILD_TESTED)
	@IDLEWISE="$(TESTED)" ./scripts/test-python

.PHONY: test-fleet
# Run by hand: Ray and Spark are downloads of 500 MB, and Google's and Azure's emulators take minutes to build and install.
test-fleet: toolchain ## sweeps into buckets of Google's and Azure's protocols, and placed by Ray and Spark, with killed workers, a server and nodes that come and go (10 minutes; Go, Node, Java)
	@./scripts/setup $(BUILD_PACKAGES) python3-venv
	@./scripts/test-python fleet

.PHONY: bench-python
bench-python: toolchain ## the Python package: decisions, steps, replays beside the command, memory, as figures (asserts nothing)
	@./scripts/setup $(BUILD_PACKAGES) python3-venv
	@$(CARGO) build --release --package idlewise-cli
	@IDLEWISE="$$(realpath "$${CARGO_TARGET_DIR:-target}/release/idlewise")" PROFILE=release ./scripts/test-python figures

.PHONY: python-docs
python-docs: ## the Python package's reference as HTML, in target/python/reference (downloads MkDocs)
	@./scripts/setup python3-venv
	@to="$$(realpath -m "$${CARGO_TARGET_DIR:-target}")/python"; mkdir -p "$$to" && python3 -m venv "$$to/docs" && \
	"$$to/docs/bin/pip" install --quiet --disable-pip-version-check 'mkdocs-material>=9.5,<10' 'mkdocstrings[python]>=0.27' && \
	cd python && NO_MKDOCS_2_WARNING=1 "$$to/docs/bin/mkdocs" build --quiet --strict --site-dir "$$to/reference" && \
	echo "$$to/reference/index.html"

.PHONY: report
report: toolchain ## a page about the bundled recordings, target/report.html
	@./scripts/setup $(BUILD_PACKAGES)
	@$(CARGO) build --profile demo --package idlewise-cli
	@mkdir -p target
	@$(DEMO) report -o target/report.html --force

DEMO_FOLDER = $${CARGO_TARGET_DIR:-target}/demo

.PHONY: site
site: toolchain book python-docs report ## the guide, the references and a live report under one index page, in target/site (Node, Chromium)
	@./scripts/setup chromium
	@./scripts/page-tools chromium
	@$(CARGO) build --quiet --profile demo --package idlewise-host --example captured
	@$(CARGO) clean --quiet --doc
	@$(DOC) $(addprefix --package ,$(LIBRARIES))
	@./site/build "$(DEMO_FOLDER)/idlewise" "$(DEMO_FOLDER)/examples/captured"

# Run by hand, and before a release.
.PHONY: test-site
test-site: site ## the site: every link, and its pages in a browser on a phone and a desk, light and dark; pictures in target/site-pictures
	@site="$$(realpath "$${CARGO_TARGET_DIR:-target}")"; "$$site/python/docs/bin/python" site/links "$$site/site" && \
	node --test-reporter=spec site/test.mjs "$$site/site"

# The page that `idlewise report` writes is built from TypeScript. What it is built into is checked in, so only who
# changes it needs Node.
PAGE = crates/idlewise-report/page

.PHONY: page
page: ## rebuild the report's page from its TypeScript (Node 20)
	@./scripts/page-tools && cd $(PAGE) && ./node_modules/.bin/tsc && node build.mjs

.PHONY: test-page
test-page: toolchain ## the report's page in a real browser: a minute (IDLEWISE_GOLDEN=rewrite: new pictures)
	@./scripts/setup $(BUILD_PACKAGES) chromium
	@$(BUILD_TESTED)
	@idlewise="$(TESTED)"; if why=$$(./scripts/page-tools chromium 2>&1); then cd $(PAGE) && ./node_modules/.bin/tsc && node build.mjs --check && \
	IDLEWISE="$$idlewise" node --test-reporter=spec tests/all.mjs; \
	else echo "SKIPPED: the report's page: $$why"; fi

.PHONY: bench-page
bench-page: toolchain ## how fast the report's page is, by the browser's own trace, as figures (asserts nothing)
	@./scripts/setup chromium
	@./scripts/page-tools chromium && cd $(PAGE) && node --max-old-space-size=8000 bench.mjs

# The crates whose interfaces are for others too. That of the rest may change with any release.
LIBRARIES = idlewise-core idlewise-park idlewise-machine idlewise-linux idlewise-trace idlewise-sim
DOC = RUSTDOCFLAGS='--deny rustdoc::all' $(CARGO) doc --quiet --no-deps --all-features

lint: toolchain ## formatting, arrows between modules, prose, clippy, documentation, licences and sources of dependencies
	$(CARGO) fmt --all --check
	@./scripts/arrows
	@./scripts/prose --self-check && ./scripts/prose
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	$(CARGO) clippy --package idlewise-cli -- --deny warnings
	$(CARGO) clippy --package idlewise-sim --no-default-features -- --deny warnings
	$(CARGO) clippy --package idlewise-park --all-features --all-targets -- --deny warnings
	$(DOC) $(PUBLISHED)
	@./scripts/cargo-deny

unit-test: toolchain ## unit, property, golden and end-to-end tests
	@./scripts/tracefs
	@./scripts/cargo-test --workspace
	@./scripts/cargo-test --package idlewise-park --features tracing --test tracing
	@./scripts/cargo-test --package idlewise-park --features lock_api --test many_waiters

# It has its own target folder, because --cfg loom rebuilds everything, and no LTO, which takes minutes.
LOOM = RUSTFLAGS='--cfg loom' CARGO_PROFILE_RELEASE_LTO=off $(CARGO) test --quiet --release \
	--package idlewise-core --package idlewise-park --test loom --target-dir "$${CARGO_TARGET_DIR:-target}/loom" -- --nocapture

loom: toolchain ## explore the waiting protocols, exhaustively where that ends, and print how many executions (hours)
	@$(LOOM)

# Three preemptions find every defect that the tests insert on purpose, in two minutes instead of hours.
loom-bounded:
	@LOOM_MAX_PREEMPTIONS=3 $(LOOM)

miri: ## run the waiting protocols' tests under miri (needs a nightly toolchain with miri)
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
	MIRIFLAGS='-Zmiri-disable-isolation' $(CARGO) +nightly miri test --package idlewise-core --lib -- doorbell idle_set && \
	MIRIFLAGS='-Zmiri-disable-isolation' $(CARGO) +nightly miri test --package idlewise-park --features lock_api --lib --test stress_parker --test stress_channel --test waker --test raw_parker --test channel --test many_waiters; \
	else echo 'SKIPPED: miri is not installed (rustup component add miri --toolchain nightly)'; fi

tsan: ## run idlewise-park's tests under ThreadSanitizer (needs a nightly toolchain with rust-src)
	@if $(CARGO) +nightly --version >/dev/null 2>&1 && [ -d "$$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then \
	RUSTFLAGS='-Zsanitizer=thread' $(CARGO) +nightly test -Zbuild-std --target "$$(rustc -vV | sed -n 's/^host: //p')" \
	--package idlewise-park --features lock_api --lib --test stress_parker --test stress_channel --test parker --test waker --test raw_parker --test channel --test many_waiters --target-dir "$${CARGO_TARGET_DIR:-target}/tsan"; \
	else echo 'SKIPPED: the standard library must be built too (rustup component add rust-src --toolchain nightly)'; fi

stress: toolchain ## 10⁹ wake-ups by real threads with random timeouts (hours; STRESS_COUNT=N for fewer)
	IDLEWISE_STRESS_COUNT=$(or $(STRESS_COUNT),1000000000) $(CARGO) test --release --package idlewise-park --test stress_parker --test stress_channel -- --nocapture

stress-short: toolchain ## the same for 15 seconds
	@IDLEWISE_STRESS_SECONDS=15 ./scripts/cargo-test --package idlewise-park --test stress_parker --test stress_channel

# The waiting crates, built for Arm and run in an emulator.
test-arm: toolchain ## test idlewise-core and idlewise-park for AArch64 under qemu-user
	@./scripts/setup $(ARM_PACKAGES)
	@if ! $(call has_target,aarch64-unknown-linux-gnu); then \
	echo 'SKIPPED: AArch64: its standard library is missing (rustup target add aarch64-unknown-linux-gnu)'; \
	elif ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then \
	echo 'SKIPPED: AArch64: packages are missing (sudo apt-get install $(ARM_PACKAGES))'; \
	else CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' \
	./scripts/cargo-test --package idlewise-core --package idlewise-park --lib --test stress_parker --test parker --test raw_parker \
	--target aarch64-unknown-linux-gnu; fi

# Whether the compiler can build for the target. rustup installs what rust-toolchain.toml lists.
has_target = [ -d "$$(rustc --print sysroot)/lib/rustlib/$(1)/lib" ]

BARE_METAL = thumbv7em-none-eabi riscv64imac-unknown-none-elf

bare-metal: toolchain ## build idlewise-core for a machine without an operating system
	@for target in $(BARE_METAL); do \
	if $(call has_target,$$target); then \
	$(CARGO) build --quiet --package idlewise-core --target $$target && echo "bare metal: idlewise-core builds for $$target" || exit 1; \
	else echo "SKIPPED: bare metal: the core library of $$target is missing (rustup target add $$target)"; fi; done

# Systems that we cannot run here. We only check that the waiting crates compile for them.
OTHER_SYSTEMS = x86_64-pc-windows-gnu x86_64-pc-windows-msvc x86_64-apple-darwin aarch64-apple-darwin

other-systems: toolchain ## check that idlewise-park compiles for Windows and macOS
	@for target in $(OTHER_SYSTEMS); do \
	if $(call has_target,$$target); then \
	$(CARGO) clippy --quiet --package idlewise-park --all-features --target $$target -- --deny warnings \
	&& echo "other systems: idlewise-park compiles for $$target" || exit 1; \
	else echo "SKIPPED: other systems: the standard library of $$target is missing (rustup target add $$target)"; fi; done

# The oldest compiler for users of idlewise-core and idlewise-park: `rust-version` in their Cargo.toml.
MSRV = $$(sed -n 's/^rust-version = "\(.*\)"/\1/p' park/idlewise-park/Cargo.toml Cargo.toml | head -n 1)

msrv: toolchain ## check idlewise-core and idlewise-park with the oldest compiler that they promise
	@if $(CARGO) +$(MSRV) --version >/dev/null 2>&1 || rustup toolchain install $(MSRV) --profile minimal >/dev/null 2>&1; then \
	$(CARGO) +$(MSRV) check --quiet --package idlewise-park --package idlewise-core --all-features \
	--target-dir "$${CARGO_TARGET_DIR:-target}/msrv" && echo "oldest compiler: both crates compile with Rust $(MSRV)"; \
	else echo "SKIPPED: oldest compiler: Rust $(MSRV) is missing (rustup toolchain install $(MSRV) --profile minimal)"; fi

# Run by hand only: it takes ten minutes and more.
.PHONY: test-killed
test-killed: toolchain ## commands that change settings, killed at each of their system calls, on a captured machine
	@./scripts/setup $(BUILD_PACKAGES)
	IDLEWISE_KILL_STEP=1 $(CARGO) test --quiet --package idlewise-cli --test cli killed:: -- --nocapture

front-door: toolchain ## run the README's first command, but for building, and look at what it prints
	@$(BUILD_TESTED)
	@command=$$(sed -n '/^```sh$$/{n;p;q}' README.md); echo "README: $$command"; \
	$$command CARGO=true DEMO="$(TESTED)" | grep ' instead of menu' && echo 'README: it prints what it promises'

# The command without debug information, since it travels into the virtual machines' memory.
test-kernel: toolchain ## the kernel modules in real kernels, in QEMU; and these as judges of the replay
	@./scripts/setup $(KERNEL_PACKAGES)
	@./scripts/setup $(KERNEL_BACKPORTS)
	@./scripts/kernel-sources $(KERNEL_SOURCES) || true
	@$(BUILD_TESTED)
	@./kernel/tests/package
	@target="$${CARGO_TARGET_DIR:-target}"; mkdir -p "$$target/kernel" && \
	strip -o "$$target/kernel/idlewise" "$(TESTED)" && export IDLEWISE="$$target/kernel/idlewise" && \
	./kernel/tests/run && MODULES_ARE_BUILT=1 ./kernel/tests/machine/run

# Run by hand only: 15 minutes on two idle CPUs.
.PHONY: hazard-kernel
hazard-kernel: toolchain ## our governor against the kernel's own in QEMU, in counted time; rewrites docs/hazard-kernel.md
	@./scripts/setup $(KERNEL_PACKAGES)
	@./scripts/setup $(KERNEL_BACKPORTS)
	@./scripts/kernel-sources $(KERNEL_SOURCES) || true
	@GOVERNORS='run_ms=100 seeds=3 loads=pingpong,requests,hackbench,periodic,interrupts,idle governors=menu,ladder,teo,hazard:256,hazard:2048' \
	./kernel/tests/run
	@./kernel/tests/rows page docs/hazard-kernel.md target/kernel/6.*/governors.log

# Run by hand only: ten minutes for all loads on one kernel. kernel/tests/rig explains what each variable may be.
RIG_VARIABLES = KERNELS GOVERNORS LOADS TABLES PATCH SEEDS RUN_MS COSTS GATE

.PHONY: rig
rig: ## loads under governors and a patch in real kernels (QEMU), as a table: make rig LOADS=requests,disk TABLES=spr,milan PATCH=my.patch
	@./scripts/setup $(KERNEL_PACKAGES) $(KERNEL_BUILD_PACKAGES)
	@./scripts/setup $(KERNEL_BACKPORTS)
	@./scripts/kernel-sources $(KERNEL_SOURCES) || true
	@$(foreach name,$(RIG_VARIABLES),$(name)='$($(name))') ./kernel/tests/rig

# Run by hand only: it takes an hour. NAMES=settings selects scripts of kernel/tests/machine.
.PHONY: test-machine
test-machine: toolchain ## commands that change this machine, on real kernels in QEMU, killed at hundreds of system calls
	@./scripts/setup $(KERNEL_PACKAGES)
	@./scripts/setup $(KERNEL_BACKPORTS)
	@$(CARGO) build --quiet --release --package idlewise-cli
	@IDLEWISE="$${CARGO_TARGET_DIR:-target}/release/idlewise" KILL_STEP=20 ./kernel/tests/machine/run $(NAMES)

# Run by hand only: instructions are emulated, so each model takes about a quarter of an hour, and as many run at once as
# there are CPUs. MODELS='EPYC:2 qemu64:1' selects some (scripts/test-cpus).
test-cpus: toolchain ## tests that meet the machine on other CPUs: AMD, Intel, 1 to 4 of them, in QEMU (long)
	@./scripts/setup $(PACKAGES) $(CPU_PACKAGES)
	@./scripts/test-cpus $(MODELS)

# Run by hand only: the kernels take half an hour to build and a quarter of an hour to run.
test-kernel-debug: toolchain ## the modules in kernels with lockdep and KASAN, or with KCSAN, built from source and kept in target
	@./scripts/setup $(KERNEL_PACKAGES) $(KERNEL_DEBUG_PACKAGES)
	@./scripts/setup $(KERNEL_BACKPORTS) $(KERNEL_DEBUG_BACKPORTS)
	@./kernel/tests/debug

# Run by hand only: each set takes about half an hour. What it records is kept, so `cargo test` checks the table without QEMU.
PREDICTION_SETS = unbound-fresh unbound-fresh-4 unbound-apart unbound-apart-4 unbound-apart-8 unbound-made unbound-made-4 pinned
PREDICTION_SETTINGS = menu again ladder teo hazard no-C6 limit table
SETS ?= $(PREDICTION_SETS)

.PHONY: test-prediction
test-prediction: toolchain ## what `predict` says against what a real kernel then does: records anew, and rewrites the table (QEMU); SETS=pinned
	@test -z '$(filter-out $(PREDICTION_SETS),$(SETS))' || { echo 'SETS: some of $(PREDICTION_SETS)'; exit 2; }
	@./scripts/setup $(KERNEL_PACKAGES) sqlite3 e2fsprogs
	@./scripts/setup $(KERNEL_BACKPORTS)
	@./scripts/kernel-sources $(KERNEL_SOURCES) || true
	@$(CARGO) build --quiet --release --package idlewise-cli
	@rm -rf target/prediction
	@export IDLEWISE="$${CARGO_TARGET_DIR:-target}/release/idlewise" BUILD=target/kernel; \
	for set in $(SETS); do case $$set in \
	pinned) ./kernel/tests/prediction/run target/prediction/pinned ;; \
	*-[0-9]) SETTINGS="$(PREDICTION_SETTINGS)" SET=$$set CPUS=$${set##*-} ./kernel/tests/loads/run target/prediction $${set%-*} ;; \
	*) SETTINGS="$(PREDICTION_SETTINGS)" ./kernel/tests/loads/run target/prediction $$set ;; \
	esac || exit; done
	@IDLEWISE_PREDICTION="$$PWD/target/prediction" IDLEWISE_GOLDEN=rewrite $(CARGO) test --package idlewise-linux --test all prediction::

# Run by hand only: it takes 20 minutes. NAMES='dns build' selects loads of kernel/tests/loads/table.
.PHONY: record-loads
record-loads: toolchain ## record the loads of recordings/causes and traces/c-* again, into target/loads (QEMU)
	@./scripts/setup $(KERNEL_PACKAGES) sqlite3 e2fsprogs
	@./scripts/setup $(KERNEL_BACKPORTS)
	@$(CARGO) build --quiet --release --package idlewise-cli
	@rm -rf target/loads
	@IDLEWISE="$${CARGO_TARGET_DIR:-target}/release/idlewise" BUILD=target/kernel ./kernel/tests/loads/run target/loads $(NAMES)

# Run by hand only: a kernel released tomorrow must not make today's change fail.
test-kernel-newest: toolchain ## the same with Debian's newest kernel, in a Debian of its own (root, 600 MB of downloads)
	@./scripts/setup $(BUILD_PACKAGES) debootstrap
	@$(CARGO) build --quiet --release --package idlewise-cli
	@IDLEWISE="$${CARGO_TARGET_DIR:-target}/release/idlewise" ./kernel/tests/newest target/debian-stable

# Run by hand only: it builds the command for AArch64. Without that, it takes two minutes on an idle machine.
.PHONY: test-machine-arm
test-machine-arm: toolchain ## the command on Debian's AArch64 kernels, with idle states by PSCI (QEMU, 150 MB of downloads)
	@./scripts/setup $(BUILD_PACKAGES) qemu-system-arm device-tree-compiler cpio python3-venv
	@TRIPLES=aarch64-unknown-linux-musl ./scripts/dist commands
	@IDLEWISE="$$(realpath "$${CARGO_TARGET_DIR:-target}")/stage/aarch64-linux-musl/idlewise" ./kernel/tests/machine/arm

# The kernels' own governors, from Debian's source packages.
KERNEL_SOURCES = target/kernel-sources

conformance: toolchain ## our ports against the C files of Debian's kernels, and against logged decisions
	@./scripts/kernel-sources $(KERNEL_SOURCES)
	$(IDLEWISE) lab verify sources $(KERNEL_SOURCES)/6.*/
	$(IDLEWISE) lab verify decisions conformance/decisions/*.csv.xz
	$(CARGO) test --quiet --release --package idlewise-cli --lib millions_of_rows -- --ignored

# Minutes. Prints the patterns of gaps in which hazard does worst against the better of menu and teo.
.PHONY: adversary
adversary: toolchain ## search for gaps in which our own governor does badly
	$(CARGO) test --release --package idlewise-cli --lib an_adversary_with_time -- --ignored --nocapture

.PHONY: hazard-scenarios
hazard-scenarios: toolchain ## what our own governor does in the cases that changed menu and teo, at first, and after a change
	$(CARGO) test --quiet --package idlewise-cli --lib hazard_scenarios -- --nocapture

.PHONY: hazard-tables
hazard-tables: toolchain ## the tables of docs/hazard.md, from recordings and from logs that this generates
	$(CARGO) run --quiet --release --package idlewise-trace --example generated_logs -- target/generated
	@$(CARGO) build --quiet --release --package idlewise-cli
	@for logs in 'recordings/kept-apart/*' \
	'recordings/made-with/* traces/b-redis.parquet traces/e-hackbench.parquet traces/s-softirq500.parquet' \
	'target/generated/simple/*' 'target/generated/other/*'; do echo "== $$logs"; \
	"$${CARGO_TARGET_DIR:-target}/release/idlewise" replay --rank $$logs --governor menu --governor menu-7.2 --governor teo \
	--governor hazard --governor hazard:lambda=0.25 --machine spr,icx,milan,genoa,skx,skl-client; done

.PHONY: hazard-limits
hazard-limits: toolchain ## whether a latency limit tells our own governor the price of delay, as a table
	@$(CARGO) build --quiet --release --package idlewise-cli
	@IDLEWISE="$${CARGO_TARGET_DIR:-target}/release/idlewise" ./scripts/limit-prices

.PHONY: patch-tables
patch-tables: toolchain ## what docs/patches/teo-mean-6.12.patch does in the replay, as tables
	@$(CARGO) build --quiet --release --package idlewise-cli
	@./scripts/kernel-sources $(KERNEL_SOURCES)
	@KEPT_APART=1 IDLEWISE="$${CARGO_TARGET_DIR:-target}/release/idlewise" ./scripts/patch-tables \
	$(KERNEL_SOURCES)/6.12/drivers/cpuidle/governors/teo.c docs/patches/teo-mean-6.12.patch

# If the packages are not available, the script has said so, and the rest is skipped. The command is the one that the
# other tests use: a release takes longer to build than this takes to run.
conformance-short: toolchain ## the same on fewer decisions
	@if ./scripts/kernel-sources $(KERNEL_SOURCES); then \
	$(BUILD_TESTED) && "$(TESTED)" lab verify sources --decisions 500000 $(KERNEL_SOURCES)/6.*/; fi

# Twice, because the bundled logs are part of the binary whose output is checked.
golden: toolchain ## rewrite expected outputs and generated documents; review the diff
	IDLEWISE_GOLDEN=rewrite $(CARGO) test --quiet --package idlewise-cli --test golden
	IDLEWISE_GOLDEN=rewrite $(CARGO) test --quiet --package idlewise-cli --test golden
	IDLEWISE_GOLDEN=rewrite $(CARGO) test --quiet --package idlewise-cli --lib watch::view
	IDLEWISE_GOLDEN=rewrite $(CARGO) test --quiet --package idlewise-park-bench pages_follow

studies: toolchain ## run the five studies and rewrite docs/studies
	@mkdir -p docs/studies
	$(IDLEWISE) lab study --pages docs/studies --force

.PHONY: install-park
install-park: toolchain ## build and install idlewise-park for C, and its library for LD_PRELOAD (PREFIX, DESTDIR)
	@./scripts/setup $(BUILD_PACKAGES)
	@$(CARGO) build --release --package idlewise-park-c --package idlewise-preload
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' ./scripts/install-park "$${CARGO_TARGET_DIR:-target}/release"

.PHONY: measured-preload
measured-preload: toolchain ## measure real programs with and without the library for LD_PRELOAD (root, 5 minutes)
	@./scripts/setup $(BUILD_PACKAGES) redis-server redis-tools nginx-light wrk postgresql
	@$(CARGO) build --release --package idlewise-preload
	@./park/idlewise-preload/programs "$${CARGO_TARGET_DIR:-target}/release/libidlewise_preload.so" 7

.PHONY: measured
measured: toolchain ## measure docs/park/measured.md again, with its figures and plots (7 minutes; leave the machine alone)
	$(CARGO) run --release --package idlewise-park-bench -- --wakes 2000 --try-mwaitx --page docs/park/measured.md --force

# Run by hand only: building promtool takes ten minutes and a gigabyte, unless Debian's package prometheus is there.
PROMETHEUS = v0.305.0

.PHONY: test-promtool
test-promtool: toolchain ## what promtool says of the metrics of `idlewise watch --serve` (Go, or Debian's prometheus)
	@$(CARGO) build --quiet --package idlewise-cli
	@IDLEWISE="$${CARGO_TARGET_DIR:-target}/debug/idlewise" ./scripts/test-promtool $(PROMETHEUS)

.PHONY: bench-watch
bench-watch: toolchain ## the CPU time of `idlewise watch` and of a scrape at 224 CPUs, as figures (asserts nothing; 2 minutes)
	@$(CARGO) build --quiet --release --package idlewise-cli
	@IDLEWISE="$${CARGO_TARGET_DIR:-target}/release/idlewise" ./scripts/bench-watch

bench: setup ## speed and memory, side by side with other tools, as figures (asserts nothing)
	@./scripts/kernel-sources $(KERNEL_SOURCES) || true
	$(CARGO) bench --package idlewise-cli --bench figures

# The number of mutants, and the number of the first. Mutants that break something are kept in the folder.
MUTANTS = 20000
MUTANT_SEED = 1
MUTANT_FOLDER = target/mutants

mutants: toolchain ## damaged recordings, logs, machines and workloads through every command: no panic, no 5 s, no 200 MB
	@mkdir -p $(MUTANT_FOLDER)
	@$(CARGO) build --quiet --release --package idlewise-cli
	IDLEWISE_MUTANT_BINARY="$$(realpath $${CARGO_TARGET_DIR:-target}/release/idlewise)" \
	IDLEWISE_MUTANT_COUNT=$(MUTANTS) IDLEWISE_MUTANT_SEED=$(MUTANT_SEED) \
	IDLEWISE_MUTANT_FOLDER="$$(realpath $(MUTANT_FOLDER))" \
	$(CARGO) test --quiet --package idlewise-cli --test mutants no_mutant -- --nocapture

FUZZ_SECONDS = 600

fuzz: toolchain ## ten minutes of fuzzing for each parser (needs a nightly toolchain)
	@$(CARGO) +nightly --version > /dev/null || { echo 'fuzz: rustup toolchain install nightly'; exit 1; }
	@./scripts/tool cargo-fuzz 0.13.1
	@export PATH="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/tools/bin:$$PATH"; \
	for crate in machine trace sim host lab; do cd "$(CURDIR)/crates/idlewise-$$crate" && \
	targets=$$($(CARGO) +nightly fuzz list) || exit 1; for target in $$targets; do \
	mkdir -p fuzz/corpus/$$target && \
	$(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target $$(ls -d tests/malformed 2>/dev/null) \
	-- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 || exit 1; done; done
