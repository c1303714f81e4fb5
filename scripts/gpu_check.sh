#!/usr/bin/env bash
# Runs the tests that need a GPU and the GPU benchmarks, and writes benchmarks/results/<date>-<device>.md.
#
# Usage: scripts/gpu_check.sh MODEL_DIRECTORY [WORK_DIRECTORY]
# MODEL_DIRECTORY is SmolLM2's (scripts/get_smollm2.py makes it). PYTHON names another Python than python3; rltrain must
# be importable in it. CHECKS chooses some of: tests train step sync rollout learn. All of it takes about 15 minutes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model=$(cd "$1" && pwd)
work=${2:-$(mktemp -d)}
python=${PYTHON:-python3}
checks=${CHECKS:-tests train step sync rollout learn}
export PYTHONPATH=$root/src:$root${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1
mkdir -p "$work"
cd "$root"

device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
name=$(printf '%s' "${device##* }" | tr '[:upper:]' '[:lower:]')
report=$root/benchmarks/results/$(date -u +%F)-$name.md
mkdir -p "$(dirname "$report")"
[[ ! -e $report ]] || report=${report%.md}-$(date -u +%H%M).md
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
printf '# %s, %s, commit %s\n\n| check | command | result |\n|---|---|---|\n' "$device" "$(date -u +%F)" "$commit" >"$report"

failed=0
# check NAME COMMAND...: the command's last line is its result
check() {
    local title=$1 log=$work/$1.log status=0
    shift
    printf '== %s: %s\n' "$title" "$*"
    "$@" >"$log" 2>&1 || status=$?
    local result
    result=$(grep -v '^ *$' "$log" | tail -1 | cut -c1-1500)
    ((status == 0)) || { failed=1 result="exit $status: $result (log: $title.log)"; }
    local command=${*//$work/WORK}
    command=${command//$python/python}
    printf '| %s | `%s` | `%s` |\n' "$title" "${command//$model/MODEL}" "${result//|/\\|}" >>"$report"
    printf '%s\n' "$result"
}
rltrain() { "$python" -c 'from rltrain.cli.app import main; main()' "$@"; }
# timed_run RUN FIRST_STEP CONFIG [OVERRIDE...]: trains and prints the steps' medians
timed_run() {
    local run=$1 first=$2
    shift 2
    rltrain train "$@" "run.directory=$work/runs" "run.name=$run" && "$python" benchmarks/times.py "$work/runs/$run" "$first"
}
wanted() { [[ " $checks " == *" $1 "* ]]; }

"$python" benchmarks/shapes.py "$model" "$work/shapes"
step=(benchmarks/gpu_step.yaml "data.sources=[{path: $work/shapes/sums.jsonl}]")
if wanted tests; then check tests "$python" -m pytest -q --run-gpu -m gpu tests/integration; fi
if wanted train; then
    for size in 0.6b 1.7b; do
        check "train-$size" "$python" benchmarks/gpu_train.py "$work/shapes/qwen3-$size" --profile "$work/profile/$size"
    done
fi
if wanted step; then check step timed_run step 3 "${step[@]}" "actor.model.path=$work/shapes/qwen3-0.6b-v49k"; fi
if wanted sync; then
    check sync timed_run sync 2 "${step[@]}" "actor.model.path=$work/shapes/qwen3-4b-v49k" run.steps=4 rollout.engines=1 \
        rollout.prompts_per_step=16 rollout.max_tokens=128 actor.tokens_per_micro_batch=8192
fi
if wanted rollout; then check rollout "$python" benchmarks/gpu_rollout.py "$work/shapes/qwen3-0.6b-v49k"; fi
if wanted learn; then
    check learn timed_run learn 50 configs/smollm2-135m-arithmetic-gpu.yaml "actor.model.path=$model"
fi

printf 'gpu_check: wrote %s\n' "$report"
exit "$failed"
