# In the place of sbatch: notes how it is called, and runs what it gets where a file `run` is.
echo "sbatch $*" >> calls
cp "${@: -1}" script.sh
if [ -e run ]; then
    for tasks in $(sed -n 's/^#SBATCH --array=\([0-9,-]*\).*/\1/p' script.sh | tr , ' '); do
        for task in $(seq "${tasks%-*}" "${tasks#*-}"); do
            SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=$task bash script.sh > "log-$task" 2>&1
        done
    done
fi
echo 'budget: 9 hours are left'
echo '77;here'
echo 'thank you; bye'
