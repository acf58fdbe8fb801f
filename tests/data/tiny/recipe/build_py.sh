set -eu
source "$RECIPE_DIR/common.sh"
phase swap
version=right
case "${TINY_FAIL:-}" in
    swap | "swap $PY_VER")
        echo "core object dirty: t1.o"
        exit 9
        ;;
    wrong) version=wrong ;;
esac
for file in "$RECIPE_DIR"/../rehearsal/model/*.c; do
    object="$TORCH_TREE/build/$(basename "$file" .c).o"
    if ! cmp -s "$file" "$object"; then
        echo "core object dirty: $object"
        exit 9
    fi
done
echo "::megabuild:: swap from=3.12 to=$PY_VER steps=3 core=0"
phase python
mkdir -p "$SP_DIR/tinypy"
cp "$PREFIX/lib/libtiny.so" "$SP_DIR/tinypy/linked"
echo "$version" > "$SP_DIR/tinypy/version"
sleep 0.5  # the engine removes the log soon after; whoever follows it must have had a chance on a busy machine
