#!/bin/sh
# Runs a compiler through an object cache: cache_compiler.sh CACHE COMPILER WORD...
#
# ccache's key has the file of the compiler. gcc and g++ do not change if a rebuilt cc1plus does: the programs that they
# start become part of the key here, for each compiler that a build runs, not only for CC and CXX.
case "${2##*/}" in *nvcc*) exec "${0%/*}/cache_nvcc.sh" "$@" ;; esac

is_cuda= lacks_system_headers=
for word do
    case "$word" in
        *.cu) is_cuda=yes ;;
        -MMD) lacks_system_headers=yes ;;
    esac
done
if [ -n "$is_cuda" ]; then  # cache_nvcc.sh says why; an nvcc under another name is not asked for its steps
    CCACHE_DISABLE=1
    export CCACHE_DISABLE
    exec "$@"
fi
# ccache would compare the listed headers only
[ -z "$lacks_system_headers" ] || unset CCACHE_DEPEND

case "${2##*/}" in
    *++*) parts="cc1plus as" ;;
    *) parts="cc1 cc1plus as" ;;
esac
for part in $parts; do
    path=$("$2" -print-prog-name="$part" 2>/dev/null) || break
    path=$(command -v "$path" 2>/dev/null) || continue
    CCACHE_EXTRAFILES="${CCACHE_EXTRAFILES:+$CCACHE_EXTRAFILES:}$path"
done
export CCACHE_EXTRAFILES
exec "$@"
