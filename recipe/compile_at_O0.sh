#!/bin/sh
# Compiler launcher for torch_optimization 0: -O0 counts only as the last word, because PyTorch's CMake files add -O2 and
# -O3 per target and per file. Everything else stays a release build.
case " $* " in
    # device code has compilers of its own; CUTLASS without inlining takes longer than with it
    *" -x cu "*SparseSemiStructured* | *" -x cu "*RowwiseScaledMM*) exec "$@" ;;
    *" -x cu "*) exec "$@" -O0 -Xcicc -O0 -Xptxas -O0 ;;
esac
exec "$@" -O0
