#!/usr/bin/env bash
# Runs each arm of this folder on TRL and keeps what TRL wrote, but for the weights:
#   golden/engines/trl/generate.sh DAPO PYTHON
# PYTHON needs trl, datasets, accelerate and pyyaml. The kept files are of TRL 1.16.0.
set -euo pipefail
dapo=$(realpath "$1")
python=$2
cd "$(dirname "$0")"
for arm in *.toml; do
    name=${arm%.toml}
    work=$(mktemp -d)
    "$dapo" engine render trl "$arm" --out "$work"
    (cd "$work" && HF_HUB_OFFLINE=1 "$python" train.py > output.log 2>&1)
    mkdir -p "$name/rollouts"
    cp "$work"/rollouts/*.jsonl "$name/rollouts/"
    cp "$work/log.jsonl" "$work/prompts.jsonl" "$name/"
    rm -rf "$work"
done
