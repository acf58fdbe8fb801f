#!/bin/sh
# CMake, with the stub compiler (stub_compiler.sh) in effect while it builds, and only then. The recipe's own builds are
# those with arguments for ninja: before each of them the lists of headers are brought up to date.
case "$1 $2 $3" in
"--build . --target") # setup.py's, in the build folder
    export STUB_DEPFILES="$STUB_LISTS"
    /usr/bin/python3 -B "${0%/*}/prepare_stub_build.py" "$PWD" "$STUB_LISTS" || exit
    ;;
esac
case "$1 $3" in
"--build --")
    export STUB_DEPFILES="$STUB_LISTS"
    /usr/bin/python3 -B "${0%/*}/prepare_stub_build.py" "$2" "$STUB_LISTS" || exit
    ;;
"--build ") export STUB_DEPFILES="$STUB_LISTS" ;;
esac
exec /usr/bin/cmake "$@"
