#!/usr/bin/env bash
# Generation on the processor beside transformers and llama.cpp, on the same random weights of the size of
# Qwen2.5-0.5B:
#   benches/reference/cpu.sh DAPO [PYTHON] [THREADS]
# PYTHON needs torch, transformers, gguf and llama-cpp-python. Batch after batch is measured in turn, so
# that another load of the machine meets all of them. JSON files and the table go to runs/bench-cpu.
set -euo pipefail
dapo=$1
python=${2:-python3}
threads=${3:-$(nproc)}
out=runs/bench-cpu
model=$out/0.5b
mkdir -p "$out"
[ -f "$model/config.json" ] || "$python" benches/reference/random_model.py --size 0.5b --out "$model"
{
    echo "| weights | rows | dapo tokens/s | transformers | llama.cpp | limit of bandwidth |"
    echo "|---|---|---|---|---|---|"
} | tee "$out/table.md"
for dtype in float32 bfloat16; do
    gguf=$out/$dtype.gguf
    [ -f "$gguf" ] || "$python" benches/reference/to_gguf.py --model "$model" --dtype "$dtype" --out "$gguf"
    weights=f32
    [ "$dtype" = float32 ] || weights=bf16
    for batch in 1 8 32; do
        work=(--model "$model" --batch "$batch" --threads "$threads")
        ours=$out/dapo-$weights-$batch.json
        theirs=$out/reference-$weights-$batch.json
        "$dapo" bench throughput "${work[@]}" --weights "$weights" --json > "$ours" 2>> "$out/log"
        "$python" benches/reference/speed.py "${work[@]}" --dtype "$dtype" --gguf "$gguf" > "$theirs" 2>> "$out/log"
        "$python" benches/reference/compare.py "$ours" "$theirs" | tee -a "$out/table.md"
    done
done
