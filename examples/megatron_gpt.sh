#!/usr/bin/env bash
# Pretrain a GPT with Megatron-LM under Perseus: a launch like any other, and --enable-perseus at its end.
#
#   MEGATRON_PATH=~/Megatron-LM examples/megatron_gpt.sh            a GPT of 2.7 billion parameters on 8 GPUs
#   MEGATRON_PATH=~/Megatron-LM examples/megatron_gpt.sh --simulate a tiny one on 4 simulated A100s, on any machine
#
# --dry-run, in front, prints the command instead. What follows goes to the training script and comes last, so that
# `--train-iters 1000` or `--perseus-target slowdown=1.05` replaces what is said here.
#
# Several nodes find each other through the planner of rank 0; docs/cluster.md sets up one for many jobs, which all nodes
# name with `--perseus-planner`. Under Slurm, with one task a node (#SBATCH --ntasks-per-node=1):
#
#   export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
#   srun examples/megatron_gpt.sh --perseus-planner planner.cluster:50151
#
# `perseus-dist doctor` says whether GPU clocks can be set on a node; where not, training runs as it would without.
set -euo pipefail

print_command() {
    printf '%q ' "$@"
    echo
}

IS_SIMULATED=0
RUN=()
while true; do
    case "${1:-}" in
        --dry-run) RUN=(print_command) ;;
        --simulate) IS_SIMULATED=1 ;;
        *) break ;;
    esac
    shift
done

REPORT=${REPORT:-perseus-report} # gets report.html at the end of the job
EXAMPLES=$(dirname "${BASH_SOURCE[0]}")
export CUDA_DEVICE_MAX_CONNECTIONS=1

PERSEUS_ARGS=(
    --enable-perseus
    --perseus-report "$REPORT"
)

if ((IS_SIMULATED)); then
    GPUS=${GPUS:-4} # 1, 2 or 4, which divide the layers
    # Real Megatron-LM, computing on the CPU; what a microbatch takes is said for the simulated GPUs.
    [ -z "${MEGATRON_PATH:-}" ] || export PYTHONPATH="$MEGATRON_PATH${PYTHONPATH:+:$PYTHONPATH}"
    if ((${#RUN[@]} == 0)) && ! python -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("megatron.training"))' 2>/dev/null; then
        echo "megatron_gpt.sh: there is no module megatron.training; set MEGATRON_PATH to a checkout of Megatron-LM" >&2
        exit 2
    fi
    LAUNCH=(
        perseus-dist sim --gpu a100 --count "$GPUS" --forward-ms 35 --backward-ms 65 --imbalance 0.15 --
        torchrun --nproc_per_node "$GPUS" --master_port "${MASTER_PORT:-29500}"
        -m perseus_dist.simulation.megatron_on_cpu -m perseus_dist.megatron "$EXAMPLES/megatron_gpt.py"
    )
    MODEL_ARGS=(
        --num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16
        --attention-dropout 0 --hidden-dropout 0 --transformer-impl local --use-cpu-initialization
        --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion
        --no-gradient-accumulation-fusion --no-persist-layer-norm
    )
    TRAINING_ARGS=(
        --pipeline-model-parallel-size "$GPUS" --distributed-backend gloo
        --micro-batch-size 1 --global-batch-size 8 --train-iters 60 --lr 0.01 --min-lr 0.001
        --num-workers 0 --log-interval 1 --eval-iters 0 --eval-interval 1000
    )
    export OMP_NUM_THREADS=1
else
    if [ -z "${MEGATRON_PATH:-}" ]; then
        echo "megatron_gpt.sh: MEGATRON_PATH is not set; set it to a checkout of Megatron-LM, or give --simulate" >&2
        exit 2
    fi
    GPUS=${GPUS:-8} # of each node
    NUM_NODES=${SLURM_NNODES:-1}
    # `-m perseus_dist.megatron` teaches pretrain_gpt.py the options. After `perseus-dist enable megatron`, which is done
    # once in an environment, leave it out; a script of your own may instead begin with
    #     import perseus_dist.megatron; perseus_dist.megatron.install()
    LAUNCH=(
        torchrun --nproc_per_node "$GPUS" --nnodes "$NUM_NODES" --node_rank "${SLURM_NODEID:-0}"
        --master_addr "${MASTER_ADDR:-localhost}" --master_port "${MASTER_PORT:-29500}"
        -m perseus_dist.megatron "$MEGATRON_PATH/pretrain_gpt.py"
    )
    MODEL_ARGS=(
        --num-layers 32 --hidden-size 2560 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048
        --bf16
    )
    TRAINING_ARGS=(
        --pipeline-model-parallel-size "$GPUS" # what is not used for stages is data parallel
        --micro-batch-size 1 --global-batch-size $((32 * NUM_NODES)) --train-iters 500
        --lr 1.6e-4 --min-lr 1.6e-5 --lr-decay-style cosine --lr-warmup-fraction .01 --clip-grad 1.0
        --mock-data --tokenizer-type NullTokenizer --vocab-size 50256 # your own: --data-path, --vocab-file, --merge-file
        --log-interval 10 --eval-iters 0 --eval-interval 1000
    )
fi

"${RUN[@]}" "${LAUNCH[@]}" "${MODEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${PERSEUS_ARGS[@]}" "$@"
