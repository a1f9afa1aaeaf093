#!/bin/bash
#SBATCH --job-name=dapo
#SBATCH --array=@ARRAY@
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output="@LOGS@/slurm-%A_%a.log"
# Time, memory, partition and account: further #SBATCH lines in a copy of this file (--template), or SBATCH_TIMELIMIT,
# SBATCH_PARTITION, … in the environment of `dapo ablate`.

@COMMAND@ &
cell=$!

# Slurm sends USR1 to this shell 120 seconds before the time limit. The cell stops after its present rollout step with a
# checkpoint and exits with 138; the task is queued again and goes on from there. TERM reaches the cell without this shell,
# which must not end before it.
trap 'kill -USR1 "$cell"' USR1
trap : TERM
code=0
wait "$cell" || code=$?
while kill -0 "$cell" 2>/dev/null; do
    code=0
    wait "$cell" || code=$?
done
if [ "$code" = 138 ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
fi
exit "$code"
