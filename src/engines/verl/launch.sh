#!/usr/bin/env bash
# Trains over all nodes: start it on each with RANK, its number from 0, and HEAD, the address of node 0; under
# Slurm, `srun --ntasks-per-node=1 launch.sh` needs neither. PYTHON names the Python that has verl. The folder
# and the base policy must lie at the same place on every node. Arguments are added to verl's overrides.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}
ray() { "$python" -m ray.scripts.scripts "$@"; }
nodes=$(sed -n 's/^trainer.nnodes=//p' overrides.txt)
if [ "$nodes" -gt 1 ]; then
    rank=${RANK:-${SLURM_NODEID:?RANK is not set}}
    head=${HEAD:-$(scontrol show hostnames "${SLURM_JOB_NODELIST:?HEAD is not set}" | head -n 1)}
    # One cluster has one token, which Ray asks for from 2.60 on; the folder is the same on every node.
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$PWD/ray-token
    if [ "$rank" -eq 0 ] && [ ! -s ray-token ]; then
        (umask 077 && "$python" -c 'import secrets; print(secrets.token_hex(32), end="")' > ray-token.partial && mv ray-token.partial ray-token)
    fi
    until [ -s ray-token ]; do sleep 1; done
    if [ "$rank" -gt 0 ]; then
        until (exec 3<> "/dev/tcp/$head/6379") 2> /dev/null; do sleep 5; done
        ray start --address "$head:6379" --block
        exit
    fi
    ray start --head --port 6379
    trap 'ray stop' EXIT
    count='import ray; ray.init(address="auto", logging_level="ERROR"); print(sum(node["Alive"] for node in ray.nodes()))'
    until [ "$("$python" -c "$count" | tail -n 1)" -ge "$nodes" ]; do sleep 5; done
    export RAY_ADDRESS=auto
fi
"$python" train.py "$@"
