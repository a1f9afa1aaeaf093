#!/usr/bin/env bash
# Generation and training on a CUDA card beside transformers and PyTorch on the same card, on random
# weights of two sizes of Qwen2.5:
#   benches/reference/gpu.sh DAPO [PYTHON]
# PYTHON needs torch 2.11 with CUDA, and transformers; its LibTorch is the one that DAPO uses. One JSON
# file for each goes to runs/bench-gpu.
set -euo pipefail
dapo=$1
python=${2:-python3}
out=runs/bench-gpu
mkdir -p "$out"
LD_LIBRARY_PATH=$("$python" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')
export LD_LIBRARY_PATH
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv | tee "$out/card.csv"
for size in 0.5b 1.5b; do
    model=$out/$size
    [ -f "$model/config.json" ] || "$python" benches/reference/random_model.py --size "$size" --out "$model"
    for batch in 256 1024; do
        work=(--model "$model" --batch "$batch" --prompt-tokens 256 --new-tokens 256 --train-rows 64)
        "$dapo" bench throughput "${work[@]}" --device cuda --weights bf16 --json > "$out/dapo-$size-$batch.json"
        "$python" benches/reference/speed.py "${work[@]}" --device cuda --dtype bfloat16 > "$out/reference-$size-$batch.json"
        "$python" benches/reference/compare.py "$out/dapo-$size-$batch.json" "$out/reference-$size-$batch.json"
    done
done
