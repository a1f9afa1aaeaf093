#!/usr/bin/env bash
# Trains each arm of this folder with verl on the processor (tests/verl_cpu), two at a time, and keeps in OUT what verl
# wrote but for its weights, and the rows and results of its updates:
#   VERL_CPU_PYTHON=PYTHON golden/engines/verl/train.sh DAPO OUT [ARM ...]
# The kept files are of verl 0.9.1, torch 2.11.0 and transformers 5.9.0; OUT was this folder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dapo=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
shift 2
export dapo here out VERL_CPU_RECORD=1 PYTHON=$here/../../../tests/verl_cpu/python

train() {
    local work
    work=$(mktemp -d)
    # shellcheck disable=SC2064  # the name is gone at the end
    trap "rm -rf '$work'" EXIT
    "$dapo" engine render verl "$here/$1.toml" --gpus-per-node 1 --out "$work" > /dev/null 2>&1
    "$work/launch.sh" > "$work/output.log" 2>&1 || { tail -n 30 "$work/output.log"; return 1; }
    rm -rf "${out:?}/$1"
    mkdir -p "$out/$1"
    cp -r "$work/prompts.jsonl" "$work/rollouts" "$work/logs" "$out/$1"
    cp "$work/updates/rank-0.jsonl" "$out/$1/updates.jsonl"
    echo "$1: trained by verl"
}
export -f train
if [ $# -eq 0 ]; then
    for arm in "$here"/*.toml; do set -- "$@" "$(basename "$arm" .toml)"; done
fi
printf '%s\n' "$@" | xargs -P 2 -I ARM bash -euo pipefail -c 'train ARM'
