#!/usr/bin/env bash
# Builds many configs one after the other; what happens to one does not stop the others.
set -u -o pipefail

usage() {
    cat <<'HELP'
usage: scripts/build-all.sh [-o FOLDER] [FILTER...] [-- OPTION...]

Builds every config that matches one of the FILTERs (shell patterns, in quotes; default: every config of this
machine's platform), in sequence, with `python3 build-locally.py CONFIG OPTION...`.

    scripts/build-all.sh 'linux_64_*'
    scripts/build-all.sh linux_64_cpu 'linux_64_cuda*' -- --keep-going --engine podman

  -o, --output FOLDER  where logs and done-markers go; default: output/build-all in the repository
  -h, --help           this text

A config that was built from the same commit, config file and options is skipped; only a clean checkout is trusted to
be what its commit says, and removing FOLDER/done/CONFIG makes it build again. A failed config does not stop the
others. However it ends, Ctrl-C included, there are a table and FOLDER/<time>.zip with the logs in the end.

Exit code: that of the first config that failed; 2 for wrong usage; 128 + n when signal n ended it.
CPU_COUNT is the number of compile jobs; unless set, as many as cores and memory allow.
HELP
}

wrong() {
    echo "build-all.sh: $*" >&2
    exit 2
}

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 2
folder=$root/output/build-all
filters=() options=()
while (($#)); do
    case $1 in
    -h | --help) usage; exit 0 ;;
    -o | --output) [[ -n ${2:-} ]] || wrong "$1 needs a folder"; folder=$2; shift ;;
    --) shift; options=("$@"); break ;;
    -*) wrong "unknown option $1 (options for build-locally.py come after --)" ;;
    *) filters+=("$1") ;;
    esac
    shift
done

# --- which configs ---------------------------------------------------------------------------------------------

this_platform() {
    local arch
    case $(uname -m) in
    x86_64 | amd64) arch=64 ;;
    aarch64 | ppc64le) arch=$(uname -m) ;;
    arm64) arch=arm64 ;;
    *) arch=$(uname -m) ;;
    esac
    case $(uname -s) in
    Darwin) echo "osx_$arch" ;;
    *) echo "linux_$arch" ;;
    esac
}
((${#filters[@]})) || filters=("$(this_platform)_*")

configs=()
for file in "$root"/.ci_support/*.yaml; do
    name=${file##*/}
    name=${name%.yaml}
    for filter in "${filters[@]}"; do
        # A name in full is itself even where it holds characters that mean something in a pattern.
        # shellcheck disable=SC2053
        if [[ $name == "$filter" || $name == $filter ]]; then
            configs+=("$name")
            break
        fi
    done
done
if ((${#configs[@]} == 0)); then
    echo "build-all.sh: no config matches ${filters[*]}; there are:" >&2
    (cd -- "$root/.ci_support" && for file in *.yaml; do echo "  ${file%.yaml}"; done) >&2
    exit 2
fi

# --- what a config was built from ------------------------------------------------------------------------------

commit=$(git -C "$root" rev-parse --verify HEAD 2>/dev/null) || commit=
if [[ -n $commit && -n $(git -C "$root" status --porcelain --untracked-files=no) ]]; then
    commit= # not what the commit says
fi

# Prints what a done-marker must say; fails when nothing can be trusted to stay the same.
state_of() {
    [[ -n $commit ]] || return 1
    local blob
    blob=$(git -C "$root" hash-object -- ".ci_support/$1.yaml") || return 1
    echo "$commit $blob ${options[*]-}"
}

# --- running one -----------------------------------------------------------------------------------------------

started=$(date -u +%Y%m%dT%H%M%SZ)
mkdir -p -- "$folder/done" || exit 2
folder=$(cd -- "$folder" && pwd) || exit 2
logs=$folder/$started
for ((again = 2; ; again++)); do
    mkdir -- "$logs" 2>/dev/null && break # another run may have begun in the same second
    ((again < 100)) || wrong "cannot make a folder for logs in $folder"
    logs=$folder/$started-$again
done

child='' interrupted=0 woken=0 first_failure=0
rows=()

# Passes a signal on to the config that is being built and keeps the next ones from starting.
interrupt() {
    interrupted=$1
    woken=1
    [[ -z $child ]] || kill -s "$2" "$child" 2>/dev/null
}
trap 'interrupt 130 INT' INT
trap 'interrupt 143 TERM' TERM
trap 'interrupt 129 HUP' HUP

# With job control the child has its own process group and keeps its handling of Ctrl-C, which a shell's background
# jobs otherwise lose; and waiting for it, unlike running it in the foreground, lets the traps run at once.
set -m
run() {
    local config=$1 log=$2 code again
    (cd -- "$root" && exec python3 build-locally.py "$config" ${options[@]+"${options[@]}"}) </dev/null >"$log" 2>&1 &
    child=$!
    woken=0
    ((interrupted)) && kill -s TERM "$child" # asked to stop before there was anything to pass it on to
    wait "$child"
    code=$?
    while ((woken)); do # wait ended because of a signal, perhaps not because the child did
        woken=0
        wait "$child"
        again=$?
        ((again == 127)) || code=$again
    done
    child=''
    return "$code"
}

duration() {
    printf '%d:%02d:%02d' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60))
}

# --- the end, whatever happened --------------------------------------------------------------------------------

table() {
    local row config code seconds log
    printf '%-36s  %-11s  %9s  %s\n' config "exit code" duration log
    for row in "${rows[@]}"; do
        IFS='|' read -r code seconds log config <<<"$row"
        printf '%-36s  %-11s  %9s  %s\n' "$config" "$code" "$seconds" "$log"
    done
}

finish() {
    local code=$?
    trap '' INT TERM HUP PIPE # neither a second Ctrl-C nor a closed terminal may cost the table
    local index
    for ((index = ${#rows[@]}; index < ${#configs[@]}; index++)); do
        rows+=("not started|-|-|${configs[index]}")
    done
    echo
    table >"$logs/summary.txt"
    cat -- "$logs/summary.txt"
    if (cd -- "$folder" && python3 -m zipfile -c "$logs.zip.part" "${logs##*/}" && mv -- "$logs.zip.part" "$logs.zip"); then
        echo "logs: $logs.zip"
    else
        echo "build-all.sh: the logs could not be zipped; they are in $logs" >&2
    fi
    ((interrupted)) && code=$interrupted
    exit "$code"
}
trap finish EXIT

count=0
for config in "${configs[@]}"; do
    ((interrupted)) && break
    ((count++))
    marker=$folder/done/$config
    log=$logs/$config.log
    if state=$(state_of "$config") && [[ -f $marker && $(<"$marker") == "$state" ]]; then
        echo "[$count/${#configs[@]}] $config: done already"
        rows+=("done already|-|-|$config")
        continue
    fi
    echo "[$count/${#configs[@]}] $config: building, log in $log"
    begun=$SECONDS
    run "$config" "$log"
    code=$?
    if ((code == 0)) && [[ -n $state ]]; then
        printf '%s\n' "$state" >"$marker.part" && mv -- "$marker.part" "$marker"
    fi
    ((code == 0 || first_failure)) || first_failure=$code
    rows+=("$code|$(duration $((SECONDS - begun)))|$log|$config")
    echo "[$count/${#configs[@]}] $config: exit code $code after $(duration $((SECONDS - begun)))"
done
exit "$first_failure"
