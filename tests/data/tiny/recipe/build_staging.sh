# "Compiles" one file after another into TORCH_TREE, as long as it is not there yet, and counts like ninja.
set -euo pipefail
source "$RECIPE_DIR/common.sh"
phase sync
mkdir -p "$TORCH_TREE/build"
phase configure
phase compile
if [[ -n "${TINY_STAGING_FAIL:-}" ]]; then
    echo "${TINY_STAGING_FAIL:-}"
    exit 1
fi
if ((CPU_COUNT > ${TINY_MOST_JOBS:-99})); then
    echo "g++: fatal error: Killed signal terminated program cc1plus"
    exit 1
fi
todo=()
for file in "$RECIPE_DIR"/../rehearsal/model/*.c; do
    object="$TORCH_TREE/build/$(basename "$file" .c).o"
    if ! cmp -s "$file" "$object"; then todo+=("$file"); fi
done
for number in "${!todo[@]}"; do
    sleep "${TINY_SECONDS:-0}"
    object="build/$(basename "${todo[$number]}" .c).o"
    cp "${todo[$number]}" "$TORCH_TREE/$object"
    echo "[$((number + 1))/${#todo[@]} $number.5s] Building C object $object"
done
phase install
mkdir -p "$PREFIX/lib"
cat "$TORCH_TREE"/build/*.o > "$PREFIX/lib/libtiny.so"
ln -sf libtiny.so "$PREFIX/lib/libtiny.so.1"
mkdir -p "$PREFIX/bin"
printf '#!/bin/sh\n' > "$PREFIX/bin/tiny-program"
chmod 755 "$PREFIX/bin/tiny-program"
sleep 0.5  # the engine removes the log soon after; whoever follows it must have had a chance on a busy machine
