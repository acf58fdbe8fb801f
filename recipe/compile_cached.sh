#!/bin/sh
# Compiler launcher in front of the object cache, its first argument: makes command lines the same in every work folder. The
# environment's path is padded to a fixed length, so its end depends on the work folder. Header folders are therefore named by
# a link next to the environment. Other paths stay: one in a macro's value becomes part of the object.
for word do
    shift
    case "$word" in
        "$PREFIX"/*) word="$BUILD_ENV_LINK${word#"$PREFIX"}" ;;
        -I"$PREFIX"/*) word="-I$BUILD_ENV_LINK${word#-I"$PREFIX"}" ;;
        -isystem="$PREFIX"/*) word="-isystem=$BUILD_ENV_LINK${word#-isystem="$PREFIX"}" ;;
    esac
    set -- "$@" "$word"
done
# The bindings get other definitions with CUDA, and other folders for each Python, which many do not read: the cache also looks
# for their preprocessed text. For libtorch, whose commands are the same, that would only take time.
case " $* " in
    *CMakeFiles/torch_python.dir/*) unset CCACHE_DEPEND ;;
esac
exec "$RECIPE_DIR/pyg/common/cache_compiler.sh" "$@"
