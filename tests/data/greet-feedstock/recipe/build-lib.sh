set -e
echo "compiling the library"
source "${RECIPE_DIR}/flags.sh"
$CC -shared -fPIC $FLAGS -o libgreet.so greet.c
$CC -o greet main.c -L. -lgreet '-Wl,-rpath,$ORIGIN/../lib'
