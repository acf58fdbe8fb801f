#!/usr/bin/env bash
# Builds many configs one after the other: `build-locally.py CONFIG...`, whose options come after two dashes.
#
#     scripts/build-all.sh                                    # every config of this machine's platform
#     scripts/build-all.sh 'linux_64_*'                       # shell patterns, in quotes
#     scripts/build-all.sh linux_64_cpu 'linux_64_cuda*' -- --keep-going --engine podman
#
# CPU_COUNT is the number of compile jobs; unless set, as many as cores and memory allow.
set -u -o pipefail

configs=()
while (($#)) && [[ $1 != -- ]]; do
    configs+=("$1")
    shift
done
exec python3 "$(dirname -- "${BASH_SOURCE[0]}")/../build-locally.py" "${configs[@]:---all}" "${@:2}"
