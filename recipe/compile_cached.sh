#!/bin/sh
# Compiler launcher in front of the object cache, which is the first argument: whatever the cache goes by is the same in
# every folder. The environment's own path is padded to a fixed length, so that its end differs with the length of its
# beginning; folders of headers are named by a link beside it. Only those: a path in a macro's value is part of the object.
for word do
    shift
    case "$word" in
        "$PREFIX"/*) word="$BUILD_ENV_LINK${word#"$PREFIX"}" ;;
        -I"$PREFIX"/*) word="-I$BUILD_ENV_LINK${word#-I"$PREFIX"}" ;;
        -isystem="$PREFIX"/*) word="-isystem=$BUILD_ENV_LINK${word#-isystem="$PREFIX"}" ;;
    esac
    set -- "$@" "$word"
done
case "${2:-}" in
    nvcc | */nvcc)
        CCACHE_EXTRAFILES="${NVCC_PROGRAMS:-}"
        export CCACHE_EXTRAFILES
        ;;
esac
exec "$@"
