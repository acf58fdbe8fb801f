#!/bin/sh
# Compiler launcher for torch_optimization 0: -O0 counts only as the last word, because PyTorch's CMake files add -O2 and
# -O3 per target and per file. Everything else stays a release build.
exec "$@" -O0
