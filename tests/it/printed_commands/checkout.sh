# A small copy of a checkout: the same names, tiny settings, and what the texts take for granted.
cp -r "$ROOT/experiments" .
base=$(cat experiments/base.toml)
change() {
  case $base in *"$1"*) base=${base/"$1"/"$2"} ;; *) echo "base.toml has no $1" >&2; exit 1 ;; esac
}
change 'prompts_per_round = 32' 'prompts_per_round = 8'
change 'group_size = 8' 'group_size = 4'
change 'max_response_tokens = 140' 'max_response_tokens = 48'
change 'rollout_steps = 40' 'rollout_steps = 2'
change 'prompts_per_step = 32' 'prompts_per_step = 8'
change 'mini_batch_rollouts = 64' 'mini_batch_rollouts = 16'
change 'dev = 4, mini-aime = 32, mini-aime-plus = 8' 'dev = 1, mini-aime = 1, mini-aime-plus = 1'
change 'rollout_steps = 5' 'rollout_steps = 1'
printf '%s\n' "$base" > experiments/base.toml
sed -i 's/^updates = 40$/updates = 2/; s/^warm_up_updates = 10$/warm_up_updates = 1/' experiments/own-task/recipe.toml

# README's arm.
printf '%s\n' 'name = "my-arm"' 'extends = "../base.toml"' '[dapo]' 'clip = { low = 0.2, high = 0.4 }' \
  > experiments/arms/my-arm.toml

mkdir -p golden models reports/study-1/grids
ln -s "$ROOT/golden/runs" golden/
# `verify` follows no link to a base policy that nobody named.
cp -r "$ROOT/golden/mini-aime" golden/
ln -s "$ROOT/golden/mini-aime/base" models/Qwen2.5-0.5B
cp "$ROOT/reports/study-1/study.json" reports/study-1/
cp "$ROOT/reports/study-1/grids/ladder.json" reports/study-1/grids/
head -n 24 experiments/own-task/train.jsonl > train.jsonl
echo '{"prompt": "347+562*3?"}' > prompts.jsonl
echo '{"response": "Answer: 1", "ground_truth": "2"}' > responses.jsonl
printf 'def compute_score(solution_str, ground_truth):\n    return float(ground_truth in solution_str)\n' > reward.py
{ echo problem,sample,correct; for i in {1..6}; do echo $i,0,$((i % 2)); echo $i,1,1; done; } > grpo.csv
for name in {dapo,grpo}-s{1,2}; do printf 'step,val/acc\n1,0.2\n2,0.%s\n' "$RANDOM" > $name.csv; done
cp "$ROOT/golden/curves/wandb-export.csv" chart.csv
{ echo arm,seed,value; for i in {1..8}; do printf 'grpo,%s,0.3%s\ndapo,%s,0.5%s\n' $i $i $i $((i * i % 7)); done; } > scores.csv
for name in dapo g1 g2 d1 d2 {grpo,dapo}-{1,2,3}; do cp grpo.csv $name.csv; done
dapo data prepare mini-aime --out data
mv data/mini-aime.parquet aime-2024.parquet
mv data/train.parquet dapo-math-17k.parquet
dapo train experiments/dapo.toml --out runs/reproduce
mkdir runs/study received
for name in a b dapo-seed1-1f2e3d4c study/stopped; do cp -r runs/reproduce runs/$name; done
rm runs/study/stopped/outcome.json
cp -r reports/study-1 runs/ablate
dapo ablate experiments/own-task/grids/own-task.toml --out runs/own-study
for name in CELL.json received/CELL.json; do cp $(ls runs/own-study/cells/*.json | head -n 1) $name; done
