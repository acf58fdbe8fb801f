#!/usr/bin/env bash
# pytorch-tests: the tests that upstream_tests/selection.ini selects from PyTorch's own tests.
set -euo pipefail

python3 "$RECIPE_DIR/upstream_tests" gather "${TORCH_TREE:-$SRC_DIR}" "$PREFIX/share/pytorch-tests"
mkdir -p "$PREFIX/bin"
cat >"$PREFIX/bin/pytorch-tests" <<'PROGRAM'
#!/bin/sh
here="$(dirname "$0")"
exec "$here/python" "$here/../share/pytorch-tests/upstream_tests" run "$@"
PROGRAM
chmod 755 "$PREFIX/bin/pytorch-tests"
