#!/bin/sh
# Runs nvcc through an object cache: cache_nvcc.sh CACHE NVCC WORD...
#
# nvcc is a driver of some ten programs, and takes flags from variables and files. ccache's key has nvcc itself and the
# words of its command only, so an object of another host compiler or of other flags would be returned. nvcc's dry run
# names every program and flag: all of them become part of the key here.
cache=$1
nvcc=$2
shift 2

# ---- words that ccache does not know in this form -----------------------------------------------------------------
has_depfile=
for word do
    shift
    case "$word" in
        -ccbin=* | --compiler-bindir=* | -optf=* | --options-file=* | -MF=*)
            set -- "$@" "${word%%=*}" "${word#*=}"
            continue ;;
        --dependency-output=*) set -- "$@" -MF "${word#*=}"; continue ;;
        --dependency-output) word=-MF ;;
        --dependency-target-name) word=-MT ;;
        -MD | --generate-dependencies-with-compile)
            has_depfile=yes
            word=-MD ;;
    esac
    set -- "$@" "$word"
done

# Never by preprocessed text: nvcc -E prints one architecture's, so the cache would return objects of former sources.
# ccache does without it if nvcc writes the list of headers.
uncached() {
    CCACHE_DISABLE=1
    export CCACHE_DISABLE
    exec "$cache" "$nvcc" "$@"
}
[ -n "$has_depfile" ] || uncached "$@"
plan=$("$nvcc" --dryrun "$@" 2>&1) || uncached "$@"

# ---- programs that nvcc starts -------------------------------------------------------------------------------------
variable() {
    printf '%s\n' "$plan" | sed -n "s/^#\\\$ $1=//p" | tail -n 1
}
here=$(variable _HERE_)
CICC_PATH=$(variable CICC_PATH)
search=$(variable PATH)
files=
add() {
    if [ -f "$1" ]; then
        files="$files${files:+:}$1"
    fi
}
find_program() {
    case "$1" in
        */*) printf '%s\n' "$1" ;;
        *) PATH="$search" command -v "$1" ;;
    esac
}
# the first word of each line that is no variable; quotes surround a folder or the whole path
programs=$(printf '%s\n' "$plan" | sed -n 's/^#\$ //p' | grep -v '^[A-Z_]*=' | sed 's/"//g' | cut -d' ' -f1 | sort -u)
[ -n "$programs" ] || uncached "$@"
for program in $programs; do
    case "$program" in
        rm | --) continue ;;
        '$CICC_PATH'/*) program="$CICC_PATH/${program#*/}" ;;
    esac
    path=$(find_program "$program") || uncached "$@"
    add "$path"
    case "${path##*/}" in
        cicc | ptxas | fatbinary | nvlink | cudafe++ | bin2c) ;;
        *)  # the host compiler, which starts programs, too
            for part in cc1plus as collect2; do
                add "$(find_program "$("$path" -print-prog-name="$part" 2>/dev/null)")"
            done ;;
    esac
done
add "$(find_program "$nvcc")"
add "$here/nvcc"
add "$here/nvcc.profile"
for library in "$(variable NVVMIR_LIBRARY_DIR)"/*.bc; do
    add "$library"
done

# ---- flags, wherever they come from --------------------------------------------------------------------------------
# paths of the work folder and of temporary files differ between builds of the same object
normal=$(printf '%s\n' "$plan" | grep -v '^#\$ [A-Z_]*PATH=' | sed \
    -e "s|${BUILD_PREFIX:-/no-build-prefix}|BUILD_PREFIX|g" \
    -e "s|${PREFIX:-/no-prefix}|PREFIX|g" \
    -e "s|${BUILD_ENV_LINK:-/no-link}|PREFIX|g" \
    -e "s|${CCACHE_BASEDIR:-/no-base}|BASE|g" \
    -e "s|$(pwd)|BASE|g" \
    -e 's|[^" =]*tmpxft_[0-9a-f]*_[0-9a-f]*-[0-9a-f]*_|TMP_|g' \
    -e 's|--module_id_file_name "[^"]*"||') || uncached "$@"
[ -n "$normal" ] || uncached "$@"
flags=$(printf '%s\n' "$normal" | sha256sum)
case "$flags" in *" "*) ;; *) uncached "$@" ;; esac

CCACHE_EXTRAFILES="${CCACHE_EXTRAFILES:+$CCACHE_EXTRAFILES:}$files"
# in place of the content of nvcc, which is one of the files
CCACHE_COMPILERCHECK="string:${flags%% *}"
# a user's settings must not lead to text
unset CCACHE_NODEPEND CCACHE_NODIRECT
CCACHE_DEPEND=1 CCACHE_DIRECT=1
export CCACHE_EXTRAFILES CCACHE_COMPILERCHECK CCACHE_DEPEND CCACHE_DIRECT
exec "$cache" "$nvcc" "$@"
