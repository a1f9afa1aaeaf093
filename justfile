# Recipes of this project. `./justw` runs them where `just` is not installed.
# A recipe is at most three lines: logic lives in the binary or under .ci/.

set positional-arguments
set shell := ["bash", "-euo", "pipefail", "-c"]

dapo := "target/debug/dapo"

# List the recipes
[private]
default:
    @{{ quote(just_executable()) }} --justfile {{ quote(justfile()) }} --list

# Train DAPO on the embedded benchmark, evaluate it and write the report; goes on after a stop
[group('reproduce')]
reproduce *ARGS: build
    {{ dapo }} train experiments/dapo.toml --out runs/reproduce --resume "$@"

# Train, evaluate and report any experiment file: just train experiments/base.toml --seed 2
[group('reproduce')]
train EXPERIMENT *ARGS: build
    {{ dapo }} train "$@"

# Write the report of a run folder again: just report runs/reproduce
[group('reproduce')]
report RUN *ARGS: build
    {{ dapo }} report "$@"

# Run the ladder of Table 1 with 3 seeds, or other grids: just ablate add-one --seeds 1..5
[group('reproduce')]
ablate *ARGS: build
    {{ dapo }} ablate "$@"

# Put SmolLM2-135M-Instruct (93 MB to fetch) and the base policy tuned from it into models/; does nothing where they are
[group('reproduce')]
smollm2: build
    @.ci/smollm2
    {{ dapo }} model tune models/SmolLM2-135M-Instruct --recipe experiments/smollm2/recipe.toml --out models/SmolLM2-135M-word-problems

# Train the base model of the embedded benchmark from nothing, into runs/base
[group('reproduce')]
pretrain *ARGS: build
    {{ dapo }} model pretrain golden/mini-aime/recipe.toml --out runs/base "$@"

# Put LibTorch into .libtorch (does nothing when it is there)
[group('build')]
setup:
    @.ci/setup-libtorch

# Build the binary
[group('build')]
build: setup
    cargo build

# Build a Python wheel with the program into target/wheels
[group('build')]
wheel: setup
    @.ci/wheel build

# Write the API documentation and refuse warnings
[group('build')]
doc: setup
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items

# Make the site of docs/ in site/; the first time cargo builds a pinned mdBook, which takes minutes
[group('build')]
docs:
    @.ci/docs

# Everything that must pass before a commit: format, lints, documentation, tests
[group('check')]
test: lint doc
    cargo test --quiet --lib --bins
    if cargo nextest --version >/dev/null 2>&1; then cargo nextest run --test it --test-threads $(({{ num_cpus() }} + 1)); else cargo test --test it; fi

# Check the format, and refuse every warning of the compiler and of clippy
[group('check')]
lint: setup
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings

# Format the code
[group('check')]
fmt:
    cargo fmt

# Time a rollout step by phase: just bench --out reports/bench/NAME.json
[group('check')]
bench *ARGS: build
    {{ dapo }} bench "$@"

# Measure generation of 0.5 billion random weights beside transformers and llama.cpp
[group('check')]
bench-cpu PYTHON="python3": build
    benches/reference/cpu.sh {{ dapo }} {{ PYTHON }}

# Check and time a CUDA card beside the processor and transformers in 9 minutes: just gpu python3 --out reports/gpu/NAME.json
[group('check')]
gpu PYTHON="python3" *ARGS: build
    "$1" benches/gpu {{ dapo }} "${@:2}"

# Time a rollout step of a real model beside TRL, and generation beside transformers: just bench-smollm2 python3 MODEL
[group('check')]
bench-smollm2 PYTHON MODEL *ARGS: build
    "$1" benches/reference/smollm2.py {{ dapo }} "${@:2}"

# Write 10,000 records of a study and measure what reads them: seconds and memory
[group('check')]
bench-cells: build
    @.ci/bench-cells {{ dapo }}

# Repeat a short training under many settings and print which digests are equal
[group('check')]
exactness: setup
    cargo test --test it all_exact_cells -- --ignored --nocapture

# Execute every line that verify prints for the committed studies: 27 minutes of base policies, once
[group('check')]
printed-checks: build
    cargo test --test it printed_checks -- --ignored --nocapture

# Run the tests of numerics, models and generation and the golden exact run with scalar and AVX2 loops
[group('check')]
isa: build
    @.ci/isa

# Count the instructions of the pure functions and compare with .ci/instructions.json
[group('check')]
count-instructions *ARGS: setup
    @.ci/count-instructions "$@"

# Train with the real verl on the processor and make its updates again here: about 20 minutes, 3 GB to fetch
[group('check')]
test-verl *ARMS: build
    @.ci/verl {{ dapo }} "$@"

# Train with reward functions of verl, TRL, Math-Verify and reasoning-gym, as their packages have them
[group('check')]
test-rewards: build
    @.ci/rewards {{ dapo }}

# Compare the functions with verl's golden vectors
[group('check')]
golden: setup
    cargo test --test it golden::

# Compare with the golden runs: a ledger bit for bit, curves within declared margins
[group('check')]
regress *ARGS: build
    {{ dapo }} regress "$@"

# Compute the committed studies again with numpy, and what was asked of them later; skipped where it cannot be installed
[group('check')]
recompute *PYTHON:
    @.ci/recompute "$@"

# Run a small grid under Slurm, started here as root, take a process and a node away, and compare the bits
[group('check')]
test-slurm: build
    @.ci/launchers slurm

# Run a small grid as jobs of Ray, kill a process and a worker, and compare the bits
[group('check')]
test-ray: build
    @.ci/launchers ray

# Run the real TRL on the golden arms, and compose the recorded configurations with the real verl
[group('check')]
test-engines: build
    @.ci/engines {{ dapo }}

# Three newcomers from an empty folder to their goals, timed: student, reviewer, maintainer
[group('check')]
first-hour *GOALS: build
    @.ci/first-hour {{ dapo }} "$@"

# Render the committed studies and a run in headless Chromium, and count screens and printed pages
[group('check')]
pages: build
    @.ci/pages {{ dapo }}

# Install the wheel into a fresh environment and time it to the first training step; arguments go to pip install
[group('check')]
wheel-test *ARGS: wheel
    @.ci/wheel test "$@"

# Two short rollout steps through the whole pipeline, into a temporary folder
[group('check')]
smoke: build
    out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT && {{ dapo }} train experiments/smoke.toml --out "$out/run"

# Accept the present output as the new snapshots; look at the difference before a commit
[group('maintain')]
bless: setup
    INSTA_UPDATE=always cargo test --lib --bins --tests

# Delete every run under runs/
[confirm('Delete every run under runs/?')]
[group('maintain')]
clean-runs:
    rm -rf runs
