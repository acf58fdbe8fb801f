#!/bin/sh
# A fake compiler, under the names gcc and g++, and as a launcher in place of the compiler that follows. While
# STUB_DEPFILES is not set it is the real one, so that CMake's checks get true answers. With it, nothing is compiled: an empty
# output appears, with the header list that was prepared for it in the folder STUB_DEPFILES (prepare_stub_build.py); nor in
# the folder STUB_FOLDER, where setuptools compiles torch._C. So a build graph of hours runs in seconds, and ninja sees no
# difference.
case ${0##*/} in
    launcher) real=$1; shift ;;
    *) real=/usr/bin/${0##*/} ;;
esac
[ -n "$STUB_DEPFILES" ] || [ "$PWD" = "$STUB_FOLDER" ] || exec "$real" "$@"
case $PWD in *CMakeScratch* | *CMakeTmp* | *CompilerId*) exec "$real" "$@" ;; esac
output='' depfile=''
while [ $# -gt 0 ]; do
    case $1 in
        -o) output=$2; shift ;;
        -MF) depfile=$2; shift ;;
    esac
    shift
done
: > "$output"
[ -n "$depfile" ] || exit 0
if [ -f "$STUB_DEPFILES/$output.d" ]; then
    ln -f "$STUB_DEPFILES/$output.d" "$depfile"
else
    echo "$output:" > "$depfile"
fi
