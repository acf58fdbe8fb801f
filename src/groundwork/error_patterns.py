"""The table of tools' error messages: each pattern with an example and the error that it must find in it.

To add a tool, add a row. Its place in the table is its priority: :mod:`groundwork.first_error` takes the first match of
the first row that is certain. Rows of :attr:`Strength.WEAK` come below all of these; of them, the last match counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

_ERROR = r"(?:catastrophic |internal compiler |internal |fatal )?(?i:error)"
_SIGNALS = (
    r"Segmentation fault|Illegal instruction|Bus error|Floating point exception|Aborted|Trace/breakpoint trap"
)
#: A shell reports these of programs that another one ended.
_ENDED = rf"{_SIGNALS}|Killed|Terminated|Hangup|CPU time limit exceeded|File size limit exceeded"
_COMPILERS = (
    r"(?:\S*[-/])?(?:[cg]\+\+|g?cc|clang(?:\+\+)?|cc1\w*|lto1|rustc|cudafe\+\+|gfortran|f951)(?:-\d+)?"
)
_LINKERS = r"(?:ld(?:\.\w+)?|mold|lld|gold)"
#: A file's name; a linker's name or the word "error" before a colon is none.
_FILE = rf"(?P<file>(?!(?i:fatal|error|warning|note|info)\s*:|(?:\S*[-/])?{_LINKERS}:)[^\s:]+)"
_LINE = r"(?P<line>\d+)"
#: What a program's message ends with if a system call failed (strerror(3)).
_SYSTEM_ERRORS = (
    r"No such file or directory|Permission denied|Exec format error|Is a directory|Not a directory|File exists"
    r"|File too large|No space left on device|Disk quota exceeded|Cannot allocate memory|Read-only file system"
    r"|Input/output error|Operation not permitted|Argument list too long|Too many open files|Text file busy"
)


class ErrorKind(str, Enum):
    """The tool that reports an error; ``--json`` names it so."""

    COMPILER = "compiler"
    LINKER = "linker"
    CMAKE = "cmake"
    PYTHON = "python"
    SHELL = "shell"
    OTHER = "other"


class Strength(Enum):
    """How surely a line is an error that ended the build."""

    CERTAIN = "certain"  #: only a failed step prints it
    WEAK = "weak"  #: also printed by programs whose failure a build ignores
    SUMMARY = "summary"  #: reports that another program failed, or a failure that builds usually ignore


@dataclass(frozen=True, kw_only=True)
class ErrorPattern:
    """A form of error messages; ``regex`` has groups ``message`` and, if the tool names them, ``file`` and ``line``."""

    kind: ErrorKind
    regex: str  #: matches from a line's start
    example: str  #: the line, and those around it that the error needs
    message: str  #: expected of the example, as all below
    file: str = ""
    line: int = 0
    strength: Strength = Strength.CERTAIN
    below: str = ""  #: what the next line must match from its start
    above: str = ""  #: what one of the six lines above must match, with groups ``file`` and ``line``
    joins: bool = False  #: the next line that is not blank belongs to the message

    @cached_property
    def match(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.regex)


#: In order of priority.
CERTAIN: Sequence[ErrorPattern] = (
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=rf"{_FILE}:{_LINE}: (?P<message>Failure|FAILED:)$",  # googletest, Catch2
        joins=True,
        example="a.cpp:5: Failure\nExpected equality of these values:",
        file="a.cpp",
        line=5,
        message="Failure: Expected equality of these values:",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=r"unknown file: (?P<message>Failure)$",
        joins=True,
        example='unknown file: Failure\nC++ exception with description "no" thrown in the test body.',
        message='Failure: C++ exception with description "no" thrown in the test body.',
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=rf"(?P<message><[\w -]+>: {_ERROR}: .*)",
        example='<command-line>: error: "_FORTIFY_SOURCE" redefined [-Werror]',
        message='<command-line>: error: "_FORTIFY_SOURCE" redefined [-Werror]',
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=rf"(?P<file>[^\s:][^:]*):{_LINE}:(?:\d+:)? (?P<message>{_ERROR}: .*)",
        example="/src/x.cpp:3:10: error: 'y' was not declared in this scope",
        file="/src/x.cpp",
        line=3,
        message="error: 'y' was not declared in this scope",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=rf"(?P<file>[^\s(][^(]*)\({_LINE}[,\d]*\) ?: (?P<message>{_ERROR}(?: #?[\w-]+)? ?: .*)",
        example='a.cu(2): error: identifier "x" is undefined',
        file="a.cu",
        line=2,
        message='error: identifier "x" is undefined',
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=rf"ptxas (?P<file>\S+), line {_LINE}; (?P<message>(?:fatal|error) *: .*)",
        example="ptxas /tmp/a.ptx, line 26; error   : Not a name of any known instruction: 'bogus'",
        file="/tmp/a.ptx",
        line=26,
        message="error : Not a name of any known instruction: 'bogus'",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=r"(?P<message>(?:Fatal )?Error: .*)",  # gfortran's place is above the quoted line
        above=rf"{_FILE}:{_LINE}:\d+:$",
        example="a.f90:4:6:\n\n    4 |   i = 'text'\n      |      1\nError: Cannot convert CHARACTER(4)",
        file="a.f90",
        line=4,
        message="Error: Cannot convert CHARACTER(4)",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=rf"(?P<file>[^\s:]+\.(?:pyx|pxd|pxi)):{_LINE}:\d+: (?P<message>(?!(?i:warn|note|performance))\S.*)",
        example="src/fast.pyx:14:11: undeclared name not builtin: long",
        file="src/fast.pyx",
        line=14,
        message="undeclared name not builtin: long",
    ),
    ErrorPattern(
        kind=ErrorKind.LINKER,
        regex=r"(?P<message>nvlink (?:fatal|error) *: .*)",
        example="nvlink error   : Undefined reference to '_Z1fv' in 'a.o'",
        message="nvlink error : Undefined reference to '_Z1fv' in 'a.o'",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=(
            r"(?P<message>(?:nvcc|ptxas|cicc|cudafe\+\+|fatbinary) (?:fatal|error) *: "
            r"(?!Failed to preprocess host compiler properties|'[^']+' died due to signal).*)"
        ),
        example="nvcc fatal   : Unsupported gpu architecture 'compute_10'",
        message="nvcc fatal : Unsupported gpu architecture 'compute_10'",
    ),
    ErrorPattern(
        kind=ErrorKind.LINKER,
        regex=(
            rf"(?!.*\bwarning: )(?:\S*\b{_LINKERS}: )?{_FILE}:(?:{_LINE}:)?(?:.*: )?[^:]*?"
            r"(?P<message>(?:undefined (?:reference|symbol)|multiple definition|relocation).*)"
        ),
        example="a.cpp:(.text+0xa): undefined reference to `helper(int)'",
        file="a.cpp",
        message="undefined reference to `helper(int)'",
    ),
    ErrorPattern(
        kind=ErrorKind.LINKER,
        regex=rf"{_FILE}: (?P<message>file not recognized: .*)",
        example="b.o: file not recognized: file format not recognized",
        file="b.o",
        message="file not recognized: file format not recognized",
    ),
    ErrorPattern(
        kind=ErrorKind.LINKER,
        regex=(
            rf"\S*\b{_LINKERS}: (?!.*\bwarning: |.*: in function |skipping incompatible |.*\blto-wrapper )"
            rf"(?:{_FILE}: )?(?P<message>.*)"
        ),
        example="ld.lld: error: undefined symbol: foo()",
        message="error: undefined symbol: foo()",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=r"(?P<message>fatal error: error in backend: .*|LLVM ERROR: .*)",
        example="fatal error: error in backend: Cannot select: 0x55: i32 = llvm.foo",
        message="fatal error: error in backend: Cannot select: 0x55: i32 = llvm.foo",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=rf"(?P<message>(?!.*frontend command failed){_COMPILERS}: {_ERROR}: .*|error\[\w+\]: .*)",
        example="c++: error: unrecognized command-line option '-mno'",
        message="c++: error: unrecognized command-line option '-mno'",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,
        regex=r"(?P<message>error: .*)",  # rustc
        below=r"\s*--> [^:]+:\d+",
        example="error: expected `;`\n --> src/main.rs:4:5",
        file="src/main.rs",
        line=4,
        message="error: expected `;`",
    ),
    ErrorPattern(
        kind=ErrorKind.CMAKE,
        regex=(
            rf"CMake Error(?: \(dev\))?(?: (?:at|in) (?P<file>[^:]+?)(?::{_LINE} \([\w:]+\))?)?:(?P<message>.*)"
        ),
        example="CMake Error (dev) at sub/deps.cmake:44 (find_package):\n  Policy CMP0146 is not set.",
        file="sub/deps.cmake",
        line=44,
        message="CMake Error: Policy CMP0146 is not set.",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=(
            r"(?P<message>ninja: (?:error|fatal): .*|Fatal Python error: .*|terminate called .*"
            rf"|.*: Assertion [`'].*' failed\.?|(?:{_SIGNALS})(?: \(core dumped\))?\s*$)"
        ),
        example="ninja: error: 'libcudart.so', needed by 'a', missing and no known rule to make it",
        message="ninja: error: 'libcudart.so', needed by 'a', missing and no known rule to make it",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=r"(?P<message>\S+: (?:error while loading shared libraries|symbol lookup error): .*)",
        example="/opt/env/bin/protoc: error while loading shared libraries: libprotoc.so.29: cannot open",
        message="/opt/env/bin/protoc: error while loading shared libraries: libprotoc.so.29: cannot open",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=rf"thread '.*' (?:\(\d+\) )?(?P<message>panicked) at (?P<file>[^\s:']+):{_LINE}:\d+:$",  # Rust
        joins=True,
        example="thread 'main' (7) panicked at build.rs:2:42:\nOPENSSL_DIR is not set: NotPresent",
        file="build.rs",
        line=2,
        message="panicked: OPENSSL_DIR is not set: NotPresent",
    ),
    ErrorPattern(
        kind=ErrorKind.SHELL,
        regex=rf"(?P<file>\S+): line {_LINE}: +\d+ (?P<message>(?:{_ENDED}).*)",
        example="/w/conda_build.sh: line 12:  4711 Terminated              cmake --build build",
        file="/w/conda_build.sh",
        line=12,
        message="Terminated cmake --build build",
    ),
    ErrorPattern(
        kind=ErrorKind.PYTHON,
        regex=r"\++ (?P<message>Timeout) \++$",  # pytest-timeout
        example='+++++ Timeout +++++\n  File "/w/test_a.py", line 12, in test_slow',
        file="/w/test_a.py",
        line=12,
        message="Timeout",
    ),
    ErrorPattern(
        kind=ErrorKind.PYTHON,
        regex=r"(?P<message>)(?:\S+: )?Traceback \(most recent call last\):",
        example='Traceback (most recent call last):\n  File "/w/a.py", line 3, in <module>\nKeyError: 1',
        file="/w/a.py",
        line=3,
        message="KeyError: 1",
    ),
    ErrorPattern(
        kind=ErrorKind.PYTHON,
        regex=r"E +(?P<message>(?:[\w.]*(?:Error|Exception|Interrupt|Failed)\b|assert ).*)",
        example="E   assert 3 == 4\n\ntest_a.py:6: AssertionError",
        file="test_a.py",
        line=6,
        message="assert 3 == 4",
    ),
    ErrorPattern(
        kind=ErrorKind.PYTHON,
        regex=r"(?:FAILED|ERROR) (?P<file>[^\s:]+\.py)(?:::\S+)? - (?P<message>.*)",
        example="FAILED tests/test_a.py::test_b - AssertionError: no",
        file="tests/test_a.py",
        message="AssertionError: no",
    ),
    ErrorPattern(
        kind=ErrorKind.PYTHON,
        regex=r"(?P<message>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*)",
        example="setuptools.errors.SetupError: no version",
        message="setuptools.errors.SetupError: no version",
    ),
    ErrorPattern(
        kind=ErrorKind.SHELL,
        regex=(
            rf"(?P<file>\S+): line {_LINE}: (?P<message>.*(?:not found|No such file|denied|unbound variable"
            r"|syntax error|bad substitution|Exec format).*)"
        ),
        example="/w/conda_build.sh: line 12: flatc: command not found",
        file="/w/conda_build.sh",
        line=12,
        message="flatc: command not found",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=r"make(?:\[\d+\])?: \*\*\* (?P<message>(?!\[|Waiting).*)",
        example="make[2]: *** No rule to make target 'libnvToolsExt.so', needed by 'foo'.  Stop.",
        message="No rule to make target 'libnvToolsExt.so', needed by 'foo'. Stop.",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=r"(?P<message>Hunk #\d+ FAILED at \d+\..*)",
        example="patching file CMakeLists.txt\nHunk #1 FAILED at 120.",
        file="CMakeLists.txt",
        message="Hunk #1 FAILED at 120.",
    ),
    ErrorPattern(
        kind=ErrorKind.COMPILER,  # compilers in other languages, Go
        regex=rf"(?P<file>[^\s:]+\.\w+):{_LINE}:\d+: (?!(?i:warn|note|remark|anmerk|avert))(?P<message>\S.*)",
        example="./main.go:12:3: undefined: foo",
        file="./main.go",
        line=12,
        message="undefined: foo",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=r"\s*(?:\u00d7 |error: )?(?P<message>No solution found .*)",  # uv
        joins=True,
        example="  \u00d7 No solution found when resolving dependencies:\n  ╰─▶ Because only torch<=2.13 is available",
        message="No solution found when resolving dependencies: Because only torch<=2.13 is available",
    ),
)

#: Messages of a failure that another program reported before, in more detail, and of failures that builds ignore.
_ABOUT_ANOTHER = (
    r".{0,200}?(?:command .{0,200} failed|[Ff]ailed building wheel|[Ff]ailed to build|Could not build wheels"
    r"|could not compile|metadata-generation-failed|subprocess-exited-with-error|failed to run custom build command"
    r"|linking with `.{0,80}` failed|test failed, to rerun|died due to signal|ResolutionImpossible: for help"
    r"|Exited with exit code|task \d+: (?:Killed|Terminated|Out Of Memory)|frontend command failed|Job step aborted"
    r"|not a git repository|No names found, cannot describe|No annotated tags can describe"
    r"|pip's dependency resolver does not currently)"
)

WEAK: Sequence[ErrorPattern] = (
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=(
            rf"(?!{_ABOUT_ANOTHER})(?P<message>(?!collect2: )(?:[\w./+-]+: )?"
            r"(?:[Ee]rror|ERROR|[Ff]atal|FATAL|fatal error): .*)"
        ),
        strength=Strength.WEAK,
        example="error: libc10_cuda.so needs libcuda.so.1",
        message="error: libc10_cuda.so needs libcuda.so.1",
    ),
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=(
            r"(?P<message>(?!.*\bwarning\b)[\w./+-]+: (?:(?:\d+: )?cannot \S.*"
            rf"|(?:.*: )?(?:{_SYSTEM_ERRORS}|not found)))$"
        ),
        strength=Strength.WEAK,
        example="cp: cannot stat 'lib/libdemo_extra.so': No such file or directory",
        message="cp: cannot stat 'lib/libdemo_extra.so': No such file or directory",
    ),
)

SUMMARIES: Sequence[ErrorPattern] = (
    ErrorPattern(
        kind=ErrorKind.OTHER,
        regex=rf"(?P<message>(?:[\w./+-]+:? )?(?:[Ee]rror|ERROR|[Ff]atal|FATAL) *: (?={_ABOUT_ANOTHER}).*)",
        strength=Strength.SUMMARY,
        example="error: command '/usr/bin/gcc' failed with exit code 1",
        message="error: command '/usr/bin/gcc' failed with exit code 1",
    ),
)
