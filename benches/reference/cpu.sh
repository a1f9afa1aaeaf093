#!/usr/bin/env bash
# Generation on the processor beside transformers and llama.cpp, on the same weights:
#   benches/reference/cpu.sh DAPO [PYTHON] [THREADS] [POLICY] [BATCHES] [TYPES]
# POLICY is a folder, or a size of random_model.py (0.5b: that of Qwen2.5-0.5B). PYTHON needs torch, transformers, gguf and
# llama-cpp-python. Batch after batch is measured in turn, so that another load of the machine meets all of
# them. JSON files and the table go to runs/bench-cpu.
set -euo pipefail
dapo=$1
python=${2:-python3}
threads=${3:-$(nproc)}
policy=${4:-0.5b}
batches=${5:-1 8 32}
types=${6:-float32 bfloat16}
out=runs/bench-cpu/$(basename "$policy")
mkdir -p "$out"
model=$policy
if [ ! -d "$policy" ]; then
    model=$out/model
    [ -f "$model/config.json" ] || "$python" benches/reference/random_model.py --size "$policy" --out "$model"
fi
{
    echo "| weights | rows | dapo tokens/s | transformers | llama.cpp | limit of bandwidth |"
    echo "|---|---|---|---|---|---|"
} | tee "$out/table.md"
for dtype in $types; do
    gguf=$out/$dtype.gguf
    [ -f "$gguf" ] || "$python" benches/reference/to_gguf.py --model "$model" --dtype "$dtype" --out "$gguf"
    weights=f32
    [ "$dtype" = float32 ] || weights=bf16
    for batch in $batches; do
        work=(--model "$model" --batch "$batch" --threads "$threads")
        ours=$out/dapo-$weights-$batch.json
        theirs=$out/reference-$weights-$batch.json
        "$dapo" bench throughput "${work[@]}" --weights "$weights" --json > "$ours" 2>> "$out/log"
        "$python" benches/reference/speed.py "${work[@]}" --dtype "$dtype" --gguf "$gguf" > "$theirs" 2>> "$out/log"
        "$python" benches/reference/compare.py "$ours" "$theirs" | tee -a "$out/table.md"
    done
done
