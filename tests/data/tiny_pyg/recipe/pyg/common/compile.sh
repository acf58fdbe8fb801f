# One compile; when it begins and ends goes into a log that all packages share.
note() { [[ -z "${TINY_LOG:-}" ]] || echo "$1 $PKG_NAME-$PY_VER" >>"$TINY_LOG"; }
note begin
sleep "${TINY_SECONDS:-0}"
${PYG_CCACHE:-} "${CXX:-g++}" -fPIC -O0 -c "$1" -o "$2"
status=$?
note end
exit $status
