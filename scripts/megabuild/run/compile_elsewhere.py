"""What a build has for sending compiles away: icecream's client with the libraries it needs, and a script before it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from groundwork import files, process
from groundwork.errors import PreflightError
from megabuild.engine.compiler_gate import HERE
from megabuild.plan.distribution import CLIENT, PACKER, SOCKET

#: Below the folder that builds only read: what is called in a compiler's place.
SCRIPT = "compile"
#: Below the folder that builds write to, for each compiler: what was said while it was packed.
_LOG = "packing.log"
_LIBRARY = re.compile(r"(?:\S+ => )?(/\S+) \(0x")
_COMPILE = """\
#!/bin/sh
# Has icecream compile an object, on whichever machine, with the very compiler that is named: packed once, and sent to
# each machine once. What icecream leaves to this one goes through the gate again, for its memory.
tools={tools} packed={packed} gate={gate}
compiler=$(command -v "$1") && stamp=$(stat -L -c %d-%i-%s-%Y "$compiler") || exec env {here}=1 "$gate" "$@"
shift
folder=$packed/$stamp-${{compiler##*/}} local=$packed/$stamp-${{compiler##*/}}/${{compiler##*/}}
if ! [ -e "$folder/done" ]; then
    mkdir -p "$folder"
    (
        flock 9
        [ ! -e "$folder/done" ] || exit 0
        cat >"$local" <<END
#!/bin/sh
case " \\$* " in *" -E "*) exec "$compiler" "\\$@" ;; esac
{here}=1 exec "$gate" "$compiler" "\\$@"
END
        chmod +x "$local"
        cd "$folder"
        PATH="$tools/bin:$PATH" bash "$tools/{packer}" "$compiler" --compression gzip >{log} 2>&1
        : >done
    ) 9>"$folder/lock"
fi
# Its name is a digest of what is in it, by which workers know what they have already.
ICECC_VERSION=$(echo "$folder"/*.tar.gz)
[ -e "$ICECC_VERSION" ] || exec "$local" "$@"
# Preprocessed whole before it is sent: of what is preprocessed half (-fdirectives-only, which icecream prefers), GCC 12
# and 14 ignore every "#pragma omp" and say nothing, so that kernels would run on one core.
export ICECC_REMOTE_CPP=0
export ICECC_VERSION ICECC_CC="$local" ICECC_CXX="$local" HOME="$tools/home"
exec "$tools/lib/{loader}" --library-path "$tools/lib" "$tools/lib/{client}" "$compiler" "$@"
"""
#: All that the packing script asks of file(1), which few images have: whether something is a program.
_FILE = """\
#!/bin/sh
for path do :; done
case "$(head -c 4 "$path" | od -An -c | tr -d ' ')" in
    177ELF) echo "$path: application/x-elf, ELF" ;;
    *) echo "$path: text/plain" ;;
esac
"""


def packing_trial(program: str, packed: str) -> str:
    """Return lines for a shell that compile check.cpp by that program, and fail where the compiler cannot be packed."""
    program, packed = shlex.quote(program), shlex.quote(packed)
    return (
        f"{program} $CXX ${{CXXFLAGS:-}} -c check.cpp -o check.o\n"
        f"if ! ls {packed}/*/*.tar.gz >/dev/null; then\n"
        f"    echo 'icecream cannot pack this compiler:'; tail -n 5 {packed}/*/{_LOG}; exit 1\n"
        "fi\n"
    )


def write_client(tools: Path, *, inside: str, packed: str, gate: str, daemon: str) -> None:
    """Write the client, and the script that calls it, into a folder that builds see at ``inside``.

    ``packed`` is a folder that builds write to, ``gate`` what stands before compilers, ``daemon`` the folder with the
    daemon's socket, all as builds see them. The client is this machine's: it finds its libraries beside it, in
    whatever system the build runs.

    Raises PreflightError: It is not installed, or no program of this system's kind.
    """
    files.remove(tools)
    libraries, home = tools / "lib", tools / "home"
    for folder in (libraries, home, tools / "bin"):
        folder.mkdir(parents=True)
    client, packer = (Path(shutil.which(name) or name) for name in (CLIENT, PACKER))
    listed = process.run(["ldd", client], timeout=10.0)
    needed = [Path(path) for path in _LIBRARY.findall(listed.stdout)]
    loader = next((path.name for path in needed if path.name.startswith("ld-")), "")
    if not loader:
        raise PreflightError(
            f"what {client} needs cannot be told: {listed.stderr.strip()}", "leave out --distribute"
        )
    for path in (client, *needed):
        files.copy(path.resolve(), libraries / path.name)
    (libraries / loader).chmod(0o755)
    files.copy(packer.resolve(), tools / PACKER)
    files.write(tools / "bin" / "file", _FILE, mode=0o755)
    # where the client looks last, and in a build's place first of all: there is no /run of this machine in it
    (home / ".iceccd.socket").symlink_to(f"{daemon}/{SOCKET.name}")
    words = {"tools": inside, "packed": packed, "gate": gate, "loader": loader}
    names = {"client": CLIENT, "packer": PACKER, "here": HERE, "log": _LOG}
    text = _COMPILE.format(**{name: shlex.quote(word) for name, word in words.items()}, **names)
    files.write(tools / SCRIPT, text, mode=0o755)
