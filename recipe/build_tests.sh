#!/usr/bin/env bash
# pytorch-tests: the tests of numerics that upstream_tests/selection.ini selects from PyTorch's own tests.
set -euo pipefail

python3 "$RECIPE_DIR/upstream_tests/pytorch_tests.py" gather "${TORCH_TREE:-$SRC_DIR}" "$PREFIX/share/pytorch-tests"
mkdir -p "$PREFIX/bin"
cat >"$PREFIX/bin/pytorch-tests" <<'PROGRAM'
#!/bin/sh
here="$(dirname "$0")"
exec "$here/python" "$here/../share/pytorch-tests/pytorch_tests.py" run "$@"
PROGRAM
chmod 755 "$PREFIX/bin/pytorch-tests"
