#!/bin/sh
# Compiler launcher for torch_optimization 0. -O0 must be the last argument, because PyTorch's CMake files add -O2 and -O3 per
# target and per file. Everything else stays a release build.
case " $* " in
    # Device code has its own compilers, which need their own -O0. CUTLASS takes longer without inlining; on ReduceMoment, ptxas
    # (CUDA 12.4) recurses without optimization until stack or memory is exhausted.
    *" -x cu "*SparseSemiStructured* | *" -x cu "*RowwiseScaledMM* | *" -x cu "*ReduceMoment*) exec "$@" ;;
    *" -x cu "*) exec "$@" -O0 -Xcicc -O0 -Xptxas -O0 ;;
esac
exec "$@" -O0
