set -eu
source "$RECIPE_DIR/common.sh"
phase package
test -f "$PREFIX/lib/libtiny.so"
