# Sourced by build scripts.

# Prints ccache's check of compilers: a hash over the programs themselves and the ones that they start. ccache alone reads
# gcc and g++ only, which do not change if a rebuilt cc1plus does. Without sha256sum: ccache's own check.
identify_compilers() {
    local compiler part found digest
    digest="$(
        for compiler in "$@"; do
            compiler="$(command -v "${compiler%% *}")" && cat "$compiler"
            for part in cc1 cc1plus as collect2; do
                found="$("$compiler" -print-prog-name="$part" 2>/dev/null)" || continue
                found="$(command -v "$found")" && cat "$found"
            done
        done | sha256sum
    )" || { echo content; return; }
    echo "string:${digest%% *}"
}
