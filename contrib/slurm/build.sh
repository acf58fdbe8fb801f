#!/bin/bash
# Build one config as jobs of Slurm: copy this file, change the settings, and run it on a login node.
#
#   CONFIG=linux_64_cuda130 bash build.sh --account=torch                       # arguments go to sbatch
#   CONFIG=linux_64_cuda130 PYTHONS="3.12 3.13" bash build.sh --account=torch   # two of its Pythons
#
# Jobs: libtorch with the first Python; an array with a task for each other Python; then everything else (extensions).
# All but the last build in their own folder below OUTPUT/slurm. Finished work passes through the store.
# A build ends before its job's time limit (--deadline, exit code 28), and Slurm requeues the job, which continues it.
#
# All nodes need this checkout, OUTPUT and MEGABUILD_CACHE at the same path on a shared file system, and the config's
# engine: bubblewrap, podman or docker. Packages built without one contain the path of their job's folder.
set -euo pipefail
export CONFIG=${CONFIG:?set it to a config, such as linux_64_cuda130}
export OPTIONS=${OPTIONS:-}                         # options of every build, such as --rehearse --engine bubblewrap
export MINUTES=${MINUTES:-720} REQUEUES=${REQUEUES:-10}
export CHECKOUT=${CHECKOUT:-$PWD}
values() {                                          # values KEY: print a key's values in the config
    sed -n "/^$1:/,/^[^-]/s/^- *'\{0,1\}\([^']*\)'\{0,1\}\$/\1/p" "$CHECKOUT/.ci_support/$CONFIG.yaml"
}
if [[ -z "${PYTHONS:-}" ]]; then                    # the first is the Python of libtorch's compile
    base=$(values torch_python_base)
    others=$(values python | sed 's/\.\* \*_cp[a-z]*[0-9]*\(t\{0,1\}\)$/\1/' | { grep -vxF "$base" || (($? == 1)); })
    PYTHONS="$base ${others//$'\n'/ }"
fi
export PYTHONS
export OUTPUT=${OUTPUT:-$CHECKOUT/output}
export MEGABUILD_STORE=${MEGABUILD_STORE:-$OUTPUT/store} MEGABUILD_STORE_WRITES=1
read -r first others <<<"$PYTHONS"

if [[ -z "${SLURM_JOB_ID:-}" ]]; then               # not in a job: submit them
    submit() {                                      # submit PART [option of sbatch ...]
        local id
        id=$(PART=$1 sbatch --parsable --job-name="$CONFIG:$1" --requeue --open-mode=append --kill-on-invalid-dep=yes \
            --output="$OUTPUT/slurm/$CONFIG-$1-%A.%a.log" --time="$MINUTES" --cpus-per-task="${CPUS:-16}" \
            --mem-per-cpu="${MEMORY:-4G}" "${@:2}" "$script") && echo "${id%%;*}"    # with --clusters: ID;CLUSTER
    }
    script=$0 more=("$@")
    mkdir -p "$OUTPUT/slurm"
    job=$(submit libtorch "${more[@]}")
    if [[ -n "$others" ]]; then
        job=$(submit pytorch --array="1-$(wc -w <<<"$others")" --dependency="afterok:$job" "${more[@]}")
    fi
    last=$(submit rest --dependency="afterok:$job" "${more[@]}")
    echo "submitted; the last job is $last. Logs: $OUTPUT/slurm"
    exit
fi

export CPU_COUNT=$SLURM_CPUS_PER_TASK
python=$first
[[ "$PART" != pytorch ]] || python=$(cut -d ' ' -f "$SLURM_ARRAY_TASK_ID" <<<"$others")
words=(-p "$python" --pyg none --remove-trees --output "$OUTPUT/slurm/py$python")
[[ "$PART" != rest ]] || words=(--output "$OUTPUT")
read -ra options <<<"$OPTIONS"
code=0
python3 "$CHECKOUT/build-locally.py" "$CONFIG" "${words[@]}" "${options[@]}" --deadline "$((MINUTES * 54))s" || code=$?
if ((code == 28 && ${SLURM_RESTART_COUNT:-0} < REQUEUES)); then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
