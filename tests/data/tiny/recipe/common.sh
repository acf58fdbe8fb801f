phase() { echo "::megabuild:: phase $*"; }
export TORCH_TREE="${TORCH_TREE:-$SRC_DIR/tree}"
