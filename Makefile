# Two commands do everything on a fresh Debian with a Rust toolchain; each installs what it lacks.
.PHONY: run test bench

# A ring of real Open vSwitch switches on this machine. ONCE=1 ends by itself.
run:
	@scripts/setup
	cargo build --release --package auster
	target/release/auster lab run scenarios/ring-failure.toml --transport quic $(if $(ONCE),--once)

# What CI runs.
test:
	@scripts/test

# The figures of results/, all or some: make bench SECTIONS='controller security'.
bench:
	@scripts/setup
	scripts/bench $(SECTIONS)
