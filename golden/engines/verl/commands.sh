#!/usr/bin/env bash
# Runs each command of docs/engines.md that needs verl, with verl 0.9.1 on the processor (tests/verl_cpu), and prints it with what
# it prints: commands.txt. An arm of the embedded benchmark
# stands for that of 16 nodes.
#   VERL_CPU_PYTHON=PYTHON golden/engines/verl/commands.sh DAPO > golden/engines/verl/commands.txt
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
dapo=$(realpath "$1")
export PYTHON=$root/tests/verl_cpu/python DAPO_PYTHON_VERL=$root/tests/verl_cpu/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
ln -s "$root/experiments" "$root/golden" .
dapo() { "$dapo" "$@"; }
# Progress lines, times and this machine's names are left out.
run() {
    printf '\n$ %s\n' "$*"
    local status=0
    eval "$*" > out 2>&1 || status=$?
    tr '\r' '\n' < out | sed -e "s#$work/##g; s#$root/##g" -e '/^train [0-9e]/d' | grep -v '^$'
    [ $status -eq 0 ] || echo "exit code $status"
}
small='--set training.rollout_steps=2 --set evaluation.samples.mini-aime=1 --set evaluation.samples.mini-aime-plus=1 --gpus-per-node 1'
run "dapo engine check verl experiments/engines/verl-dapo.toml --python \$PYTHON --gpus-per-node 1"
run "dapo engine launch verl experiments/engines/verl-dapo.toml $small --out runs/launched --no-plan"
run "dapo engine launch verl experiments/engines/verl-dapo.toml $small --out runs/launched --no-plan --resume"
run "dapo engine render verl experiments/engines/verl-dapo.toml $small --out runs/rendered"
run 'runs/rendered/launch.sh > log 2>&1'
run "dapo engine import verl experiments/engines/verl-dapo.toml $small --from runs/rendered --out runs/imported --no-plan"
run dapo verify runs/imported
run dapo diff runs/launched runs/imported
run '$VERL_CPU_PYTHON runs/rendered/train.py --cfg job > job.yaml 2> composing'
run dapo engine check verl job.yaml
run dapo engine check verl job.yaml --against experiments/engines/verl-dapo.toml --json
run dapo engine audit verl runs/rendered/rollouts --config job.yaml --log runs/rendered/logs/1.jsonl --verifier answer-line
