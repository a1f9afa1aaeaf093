# What the calls read, beside two runs.
ln -s "$ROOT/reports" "$ROOT/golden" .
for shift in 0 1; do
  name=$([ $shift = 0 ] && echo a || echo b)
  echo problem,sample,correct > $name.csv
  seq 0 159 | awk -v s=$shift '{ printf "%d,%d,%d\n", $1 / 4, $1 % 4, (($1 * 7 + s) % 5 > 1 + s) }' >> $name.csv
done
cat > responses.jsonl << 'END'
{"response": "Answer: 5", "ground_truth": "5"}
{"response": "so it is 7", "ground_truth": "7"}
{"response": "Answer: 12 apples in all of the boxes", "ground_truth": "12"}
END
