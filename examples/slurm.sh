#!/bin/bash
# A training run on two nodes of four GPUs each; submit it with 'sbatch slurm.sh'.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue

set -euo pipefail
packed=${1:-photos.fl}

# Where the ranks meet: the job's first node.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT

# One copy on each node's own disk, which serves all of its ranks.
local=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/$SLURM_JOB_ID
srun --ntasks-per-node=1 --ntasks="$SLURM_NNODES" \
  sh -c "mkdir -p '$local' && cp -r '$packed' '$local'"

srun python train_distributed.py "$local/$(basename "$packed")" --epochs 90
