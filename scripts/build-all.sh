#!/usr/bin/env bash
# Builds many configs: `build-locally.py CONFIG...`. Its options come after the configs.
#
#     scripts/build-all.sh                                    # every config of this machine's platform
#     scripts/build-all.sh 'linux_64_*'                       # shell patterns, in quotes
#     scripts/build-all.sh linux_64_cpu 'linux_64_cuda*' --keep-going --engine podman
#     scripts/build-all.sh --plan                             # what would be built
#
# At the end, also after a failure or Ctrl-C, output/logs/logs-TIME.zip has the logs of the run. Finished packages are
# skipped: run it again to resume. CPU_COUNT is the number of compile jobs; unless set, as many as cores and memory allow.
set -u -o pipefail

configs=()
while (($#)) && [[ $1 != -* ]]; do
    configs+=("$1")
    shift
done
[[ ${1:-} != -- ]] || shift
here="$(dirname -- "${BASH_SOURCE[0]}")" || exit
exec python3 "$here/../build-locally.py" "${configs[@]:---all}" --zip-logs "$@"
