# Compiles some files with ninja, as many at once as the driver says.
set -euo pipefail
phase() { echo "::megabuild:: phase $*"; }
export NINJA_STATUS='[%f/%t %es] '
phase compile
test -f "$PREFIX/lib/libtorch.txt"
if [[ "${TINY_FAIL:-}" == "$PKG_NAME-$PY_VER" ]]; then echo "error: $PKG_NAME does not compile"; exit 1; fi
if [[ -n "${PYG_WHEEL:-}" ]]; then
    mkdir -p "$PREFIX/share/$PKG_NAME"
    cp "$PYG_WHEEL" "$PREFIX/share/$PKG_NAME/lib.so"
    exit
fi
cat >build.ninja <<NINJA
rule compile
  command = bash $RECIPE_DIR/../common/compile.sh \$in \$out
rule link
  command = ${CXX:-g++} -shared -o \$out \$in
NINJA
objects=()
for number in 1 2 3 4; do
    echo "int f$number() { return $number; }" >"f$number.cc"
    echo "build f$number.o: compile f$number.cc" >>build.ninja
    objects+=("f$number.o")
done
echo "build lib.so: link ${objects[*]}" >>build.ninja
"${TINY_NINJA:-ninja}" -j "$CPU_COUNT" lib.so
phase package
mkdir -p "$PREFIX/share/$PKG_NAME"
cp lib.so "$PREFIX/share/$PKG_NAME/"
sleep 0.3  # the engine removes the log soon after; whoever follows it must have had a chance on a busy machine
