#!/bin/sh
# Compiler launcher for torch_optimization 0: -O0 counts only as the last word, because PyTorch's CMake files add -O2 and
# -O3 per target and per file. Everything else stays a release build.
case " $* " in
    # Device code has compilers of its own. CUTLASS without inlining takes longer than with it; and over the moments ptxas
    # (CUDA 12.4), when it does not optimize, calls itself until stack or memory end.
    *" -x cu "*SparseSemiStructured* | *" -x cu "*RowwiseScaledMM* | *" -x cu "*ReduceMoment*) exec "$@" ;;
    *" -x cu "*) exec "$@" -O0 -Xcicc -O0 -Xptxas -O0 ;;
esac
exec "$@" -O0
