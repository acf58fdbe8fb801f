"""Shell scripts followed without running them: what they set must be what bash sets."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from megabuild.audit.readers.script import Script, Unreadable

BASH = shutil.which("bash")


def after(text: str, *arguments: str, **variables: str) -> dict[str, str | None]:
    """Return all variables that a script leaves."""
    state = Script(text, arguments=arguments, variables=variables).state
    return {name: assigned.text for name, assigned in state.variables.items()}


#: name: (script, arguments, environment); every script leaves its result in ``x``, and bash is the judge
SCRIPTS: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, str]]] = {
    "quotes": ("""a='single $b'; b="double $a"; x=$a/"$b"/'c d'""", (), {}),
    "blanks around expansions": ("""a=1; b=2; x=" $a  $b ; ${a} " """, (), {}),
    "default where unset": ("x=${none:-other}", (), {}),
    "default where set": ("a=set; x=${a:-other}", (), {}),
    "alternative where set": ("a=set; x=${a:+other}${none:+no}", (), {}),
    "default from a variable": ("b=2; x=${none:-${b}.$b}", (), {}),
    "substring": ("v=12.6.3; x=${v:0:4}-${v:3}", (), {}),
    "length": ("v=cu126; x=${#v}", (), {}),
    "suffix": ("v=12.6.3; x=${v%.*}-${v%%.*}", (), {}),
    "prefix": ("v=a/b/c; x=${v#*/}-${v##*/}", (), {}),
    "replace once and everywhere": ("v=1.2.3; x=${v/./}-${v//./_}", (), {}),
    "replace with a variable": ('v="5.0;7.0;8.0"; a=7.0; x="${v//${a};/}"', (), {}),
    "append": ("x=a; x+=b; x+=$x", (), {}),
    "export": ("x=a; export x=${x}b", (), {}),
    "parameters": ('x="$1,$2,$#"; x+=${1}-${2}', ("one", "two"), {}),
    "environment": ("x=${CUDA_VERSION:0:2}", (), {"CUDA_VERSION": "13.0"}),
    "if with elif": ("if [[ $1 == 1* ]]; then x=a; elif [[ $1 == 2* ]]; then x=b; else x=c; fi", ("20",), {}),
    "else": ("if [ -z $1 ]; then x=a; else x=c; fi", ("20",), {}),
    "old test": ('if [ "$1" = \'amd64\' ] || [ "$1" = x86_64 ]; then x=64; fi', ("x86_64",), {}),
    "test command": ("x=no; test $# -gt 1 && x=yes", ("a", "b"), {}),
    "not": ("x=no; if ! [[ -n $none ]]; then x=yes; fi", (), {}),
    "not equal": ("x=no; [[ $1 != 12.9* ]] && x=yes", ("12.8",), {}),
    "regular expression": ("x=no; if [[ ${1:0:4} =~ ^12\\.[5-9]$ ]]; then x=yes; fi", ("12.8.1",), {}),
    "quoted pattern is literal": ('x=no; [[ $1 == "1*" ]] && x=yes', ("12",), {}),
    "and within brackets": ("x=no; if [[ $1 == a && $2 == b ]]; then x=yes; fi", ("a", "b"), {}),
    "or within brackets": ("x=no; if [[ $1 == b || $2 == b ]]; then x=yes; fi", ("a", "b"), {}),
    "case": ("case $1 in a|b) x=1 ;; 11.[67]) x=2 ;; *) x=3 ;; esac", ("11.7",), {}),
    "case with default": ("case $1 in a) x=1 ;; *) x=3 ;; esac", ("11.7",), {}),
    "loop with shift": (
        "x=; while test $# -gt 0; do case $1 in a) x+=1 ;; *) x+=2 ;; esac; shift; done",
        ("a", "b"),
        {},
    ),
    "for": ('x=; for i in 1 2 "3 4"; do x+="<$i>"; done', (), {}),
    "for over parameters": ('x=; for i in "$@"; do x+=$i; done', ("a", "b"), {}),
    "break and continue": (
        "x=; for i in 1 2 3 4; do if [[ $i == 2 ]]; then continue; fi; if [[ $i == 4 ]]; then break; fi; x+=$i; done",
        (),
        {},
    ),
    "break out of an endless loop": ("x=1; while true; do x=2; break; done", (), {}),
    "function sets a global": ("f() { v=$1; x=${v}!; }; f 3", (), {}),
    "function keyword": ("function f { x=$1; }\nf 3", (), {}),
    "output of a function": (
        'f() { local r=$1; shift; for a in "$@"; do r=${r//$a/}; done; echo "$r"; }; x=$(f abc b c)',
        (),
        {},
    ),
    "output by condition": ('x=a$([[ $1 == y ]] && echo "b" || echo "")c', ("y",), {}),
    "output by the other condition": ('x=a$([[ $1 == y ]] && echo "b" || echo "")c', ("n",), {}),
    "return": ("f() { x=1; return; x=2; }; f", (), {}),
    "exit": ("x=1; exit 0; x=2", (), {}),
    "subshell": ("x=1; (x=2)", (), {}),
    "comment": ("x=1 # x=2\n# x=3", (), {}),
    "here document": ("x=1\ncat >/dev/null <<EOF\nx=2\nEOF", (), {}),
    "assignment for one command": ("x=1; x=2 true", (), {}),
    "no shell can be trusted with this": ("x='$(echo hi)'", (), {}),
}


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_sets_what_bash_sets(name: str) -> None:
    text, arguments, environment = SCRIPTS[name]
    ending = "trap 'printf %s \"$x\"' EXIT\n"
    assert BASH is not None
    ran = subprocess.run(
        [BASH, "-c", ending + text, "script", *arguments],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert after(text, *arguments, **environment).get("x", "") == ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "text",
    [
        "x=$(uname -m)",
        "x=$(cat /etc/hostname)",
        "x=`date`",
        "x=a$(nproc)b",
        "x=(1 2)",
        "x=$((1 + 1))",
        "x=1; if [ -d /opt ]; then x=2; fi",
        "x=1; if grep -q a b; then x=2; else x=3; fi",
        "x=1; some_command && x=2",
        "x=1; case $(uname) in Linux) x=2 ;; esac",
        "x=1; while read line; do x=2; done",
        "v=$(date); x=${v:-1}",
        "x=1; if [[ a =~ (a+)+$ ]]; then x=2; fi",
        "for i in 1 2; do if [ -f a ]; then break; fi; x=$i; done",
        "for i in 1 2; do [ -f a ] && continue; x=$i; done",
        "f() { [ -f a ] && return; x=1; }; f",
        "x=$1-$2",  # the grammar takes this for a command
        "f() { echo $1,$2; }; x=$(f a b)",
    ],
)
def test_what_depends_on_the_machine_is_unknown(text: str) -> None:
    assert after(text)["x"] is None


def test_a_branch_that_may_be_taken_leaves_what_it_does_not_touch() -> None:
    assert after("y=1; if [ -d /opt ]; then x=2; exit 1; fi; z=3") == {"y": "1", "x": None, "z": "3"}


def test_a_doubt_ends_with_the_loop_or_function_it_is_about() -> None:
    left = after("f() { for i in 1; do [ -f a ] && break; x=1; done; y=2; [ -f b ] && return; }; f; z=3")
    assert (left["x"], left["y"], left["z"]) == (None, "2", "3")


def test_outputs_and_files_are_used_where_they_are_given() -> None:
    script = Script(
        "m=$(uname -m)\np=$(cat pins/a.txt)",
        outputs={"uname -m": "aarch64"},
        printed={"pins/a.txt": "v1.2\n"}.get,
    )
    assert script.state.variables["m"].text == "aarch64"
    assert (script.state.variables["p"].text, script.state.variables["p"].file) == ("v1.2", "pins/a.txt")


def test_calls_are_noted_with_what_their_arguments_expand_to() -> None:
    state = Script("v=1.2\nf() { wget -q https://a.invalid/$1-${v}.run $(date); }\nf x").state
    assert [(call.name, call.arguments, call.line) for call in state.calls] == [
        ("f", ("x",), 3),
        ("wget", ("-q", "https://a.invalid/x-1.2.run", None), 2),
    ]


def test_exit_gives_its_status_and_ends_the_script() -> None:
    assert Script("x=1\nexit 3\nx=2").state.status == "3"
    assert Script("x=1").state.status is None


def test_a_variable_has_the_line_that_chose_its_value_not_the_one_that_exports_it() -> None:
    assert Script("x=1\ny=2\nexport x=${x}").state.variables["x"].line == 1


@pytest.mark.parametrize(
    "text", ["while true; do :; done", "f() { f; f; }; f", "while [[ a == a ]]; do x=1; done"]
)
def test_a_script_without_end_is_given_up(text: str) -> None:
    with pytest.raises(Unreadable, match=r"does not end|too deeply"):
        Script(text)


def test_a_text_that_doubles_for_ever_becomes_unknown() -> None:
    assert after("x=ab; for i in " + "1 " * 100 + "; do x=$x$x; done")["x"] is None


def test_nothing_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    Script(
        f"touch {marker}; x=$(touch {marker}); eval touch {marker}; `touch {marker}`; cat <(touch {marker})"
    )
    assert not marker.exists()
