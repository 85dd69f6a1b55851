# Two commands do everything on a fresh Debian with a Rust toolchain; each installs what it lacks.
.PHONY: run test test-web bench papers papers-report

# A ring of real Open vSwitch switches on this machine. ONCE=1 ends by itself. It builds the
# development profile: half the time of a release build, and the tests share it.
run:
	@scripts/setup
	cargo build --locked --package auster --package auster-lab
	target/debug/auster lab run scenarios/ring-failure.toml --transport quic $(if $(ONCE),--once)

# What CI runs.
test:
	@scripts/test

# The dashboard: built anew and compared, then driven in a real browser. It needs Node.js 20.
test-web:
	@scripts/test-web

# The figures of results/, all or some: make bench SECTIONS='controller security'.
bench:
	@scripts/setup
	scripts/bench $(SECTIONS)

# Every figure, table and headline number of the five papers, and a report: an hour, or QUICK=1: nine minutes.
papers:
	@scripts/setup
	cargo build --locked --release --package auster --package auster-lab
	target/release/auster papers run $(if $(QUICK),--quick)

# The report and the table of docs/papers.md out of what is stored in results/.
papers-report:
	cargo build --locked --release --package auster --package auster-lab
	target/release/auster papers report results --markdown docs/papers.md -o target/papers.html
