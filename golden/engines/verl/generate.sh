#!/usr/bin/env bash
# Composes each configuration of this folder with verl, and keeps what came out:
#   golden/engines/verl/generate.sh DAPO PYTHON...
# Each PYTHON has one version of verl and what its validation imports. The kept files are of 0.9.1 and 0.7.1. A
# configuration that a version refuses to compose has no file for it.
set -euo pipefail
dapo=$(realpath "$1")
shift
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$dapo" engine render verl dapo.toml --out "$work" --gpus-per-node 1 > /dev/null
cp configs/* "$work"
sed 's#^\(actor_rollout_ref.model.path\|.*reward_kwargs.program\)=.*/#\1="#' "$work/overrides.txt" > "$work/dapo.txt"
mkdir -p composed
for python in "$@"; do
    version=$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("verl"))')
    for config in dapo.txt $(ls configs); do
        "$python" - "$work/$config" > "$work/input" << 'EOF'
import json, os, sys
path = sys.argv[1]
text = open(path).read()
overrides = [line for line in text.splitlines() if line and not line.startswith("#")]
whole = {"text": text, "folder": os.path.dirname(path)}
print(json.dumps(whole if path.endswith(".yaml") else {"overrides": overrides}))
EOF
        if "$python" -c "CALLER = $$; $(cat ../../../src/engines/asked.py ../../../src/engines/verl/compose.py)" < "$work/input" > "$work/output" 2> "$work/errors"; then
            tail -n 1 "$work/output" > "$work/composed"
            case $(cat "$work/composed") in
                '{"refused"'*) echo "$config, verl $version: $(cat "$work/composed")" ;;
                *) mv "$work/composed" "composed/${config%.*}-$version.json" ;;
            esac
        else
            echo "$config, verl $version: $(tail -n 1 "$work/errors")"
        fi
    done
done
