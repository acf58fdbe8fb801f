"""The first real error in what tools have really printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from groundwork.error_report import FirstError
from groundwork.failed_step import find_failed_step
from groundwork.first_error import first_error
from groundwork.text import plain
from megabuild.run.failure import network_failed, of_last_phase

FAILURES = Path(__file__).resolve().parent.parent / "data" / "failures"


def error_in(said: Sequence[str]) -> FirstError:
    """Return the first error of lines that have one."""
    found = first_error(said)
    assert found is not None
    return found


def lines(name: str) -> list[str]:
    return of_last_phase([plain(line) for line in (FAILURES / f"{name}.log").read_text().splitlines()])


@pytest.mark.parametrize(
    ("name", "kind", "headline"),
    [
        ("ninja-werror", "compiler", "/src/werror.cpp:2: error: unused variable "),
        ("ninja-header", "compiler", "/src/inner.h:3: fatal error: nosuch/header.h: No such file or directory"),
        ("ninja-link", "linker", "link.cpp: undefined reference to `missing()'"),
        ("ninja-lib", "linker", "cannot find -lnosuchlib: No such file or directory"),
        ("ninja-gen", "python", "/src/gen.py:4: ModuleNotFoundError: No module named 'no_such_module'"),
        ("cmake-command", "cmake", 'CMakeLists.txt:4: CMake Error: Unknown CMake command "foo".'),
        ("pytest-import", "python", "test_import.py:1: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("pytest-assert", "python", "test_assert.py:3: AssertionError: not two"),
        ("python-syntax", "python", "/src/syn.py:1: SyntaxError: invalid syntax"),
        ("python-chained", "python", "/src/ch.py:2: ModuleNotFoundError: No module named 'nosuch'"),
        ("nvcc-bad", "compiler", 'bad.cu:3: error: identifier "undefined_thing" is undefined'),
        ("nvcc-ext", "compiler", "ptxas fatal : Unresolved extern function '_Z5otherf'"),
        ("nvcc-arch", "compiler", "nvcc fatal : Unsupported gpu architecture 'compute_10'"),
        ("crash-segv", "other", "/w/test/test_torch.py:88: Fatal Python error: Segmentation fault"),
        ("crash-illegal", "shell", "/w/conda_build.sh:3: Illegal instruction (core dumped) python"),
        ("crash-abort", "other", "terminate called after throwing an instance of 'c10::Error': what():  CUDA driver"),
        ("exception-ignored", "shell", "/opt/state/test/run_test.sh:12: Segmentation fault (core dumped) python"),
        ("ninja-missing", "other", "ninja: error: '/opt/env/lib/libcudart.so', needed by 'lib/libtorch_cuda.so', mi"),
        ("colours-make", "compiler", "src/x.cpp:1: error: "),
        ("step-exec-format", "other", "/bin/sh: 1: /src/build/bin/protoc: Exec format error"),
        ("step-ld-format", "linker", "/opt/arm/lib/libprotobuf.so: error adding symbols: file in wrong format"),
        ("step-loadlib2", "other", "/opt/env/bin/protoc: error while loading shared libraries: libprotoc.so.29.3.0"),
        ("tool-autoconf", "other", "configure: error: in `/w':"),
        ("tool-cargo", "compiler", "src/lib.rs:3: error[E0433]: failed to resolve"),
        ("tool-gomod", "compiler", "./main.go:12: undefined: foo"),
        ("tool-make-nort", "other", "No rule to make target '/usr/local/cuda/lib64/libnvToolsExt.so'"),
        ("tool-patch", "other", "CMakeLists.txt: Hunk #1 FAILED at 120."),
        ("case-pip-vv", "compiler", "b.c:1: fatal error: nosuch_header_for_this.h: No such file or directory"),
        ("case-pip-plain", "compiler", "b.c:1: fatal error: nosuch_header_for_this.h: No such file or directory"),
        ("case-pip-ninja", "compiler", "csrc/cpu/scatter_cpu.cpp:12: error: 'foo' was not declared in this scope"),
        ("case-pip-skbuild", "cmake", ("/opt/env/share/cmake-4.1/Modules/FindPackageHandleStandardArgs.cmake:227: "
         "CMake Error: Could NOT find CUDAToolkit (missing: CUDAToolkit_INCLUDE_DIRS)")),
        ("case-install", "cmake", ("cmake_install.cmake:65: CMake Error: file INSTALL cannot find "
         '"/w/b/lib/libtorch_global_deps.so"')),
        ("case-cuda-mismatch", "python", ("/opt/env/lib/python3.12/site-packages/torch/utils/cpp_extension.py:510: "
         "RuntimeError: The detected CUDA version (12.2) mismatches")),
        ("case-pytest-e", "python", "test/test_a.py:5: RuntimeError: Building with CUDA failed:"),
        ("case-lto-version", "compiler", "lto1: fatal error: bytecode stream in file 'b.o' generated with"),
        ("case-nvcc-hostcc", "compiler", "gcc: fatal error: cannot execute 'cc1plus': execvp: No such file"),
        ("case-collect2-only", "linker", "b.o: file not recognized: file format not recognized"),
        ("case-cmake-notfound-vars", "cmake", "CMake Error: The following variables are used in this project"),
        ("case-quoted-source", "compiler", "ops.cpp:3: error: 'foo' was not declared in this scope"),
        ("case-nvcc-host", "compiler", ("/opt/env/targets/x86_64-linux/include/crt/host_config.h:143: error: #error -- "
         "unsupported GNU version! gcc versions later than 15 are not supported!")),
    ],
)  # fmt: skip
def test_the_first_real_error_of_real_outputs(name: str, kind: str, headline: str) -> None:
    found = error_in(lines(name))
    assert (found.kind, found.headline[: len(headline)]) == (kind, headline)
    assert any(found.message.split()[-1] in line for line in found.excerpt)


def test_cmake_s_first_sentence_is_its_message_and_who_called_is_shown() -> None:
    found = error_in(lines("cmake-find"))
    assert found.headline.startswith(
        "sub/deps.cmake:2: CMake Error: Could not find a package configuration file"
    )
    assert "  sub/CMakeLists.txt:1 (include)" in found.excerpt
    assert "goes on" not in "".join(found.excerpt)
    broken = error_in(lines("cmake-compiler"))
    assert broken.kind == "cmake", "the FAILED: set in below it is of CMake's own trial"
    assert "is not able to compile a simple test program" in broken.message
    assert any("CUDA_cublas_LIBRARY" in line for line in error_in(lines("case-cmake-notfound-vars")).excerpt)


def test_where_a_template_is_used_stands_before_its_error() -> None:
    found = error_in(lines("ninja-template"))
    assert found.headline.startswith("/usr/include/c++/12/bits/predefined_ops.h:45: ")
    assert any(line.startswith("/src/template.cpp:6:12:") for line in found.excerpt)


def test_a_step_without_a_message_is_told_by_its_own_words() -> None:
    said = ["FAILED: [code=1] gen.h ", "cd build && ./gen", "cannot do it", "[2/3 1s] Building x.o"]
    found = error_in(said)
    assert (found.headline, found.command) == ("cannot do it", "cd build && ./gen")
    assert found.excerpt == ("cannot do it",)
    silent = error_in(["FAILED: gen.h", "false", "ninja: build stopped: subcommand failed."])
    assert silent.headline == "gen.h: failed without output"


_IGNORED = 'Exception ignored in atexit callback: <f>\nTraceback (most recent call last):\n  File "/x.py"\nKeyError: x'
_LINK = "FAILED: a.so\nc++ -o a.so\nx.h:3:1: warning: unused\n"


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        # nvlink's and ptxas's are as NVIDIA's documentation and users quote them
        ("/x/conda_build.sh: line 12: flatc: command not found", "/x/conda_build.sh:12: flatc: command not found"),
        ("error: libc10_cuda.so needs libcuda.so.1", "error: libc10_cuda.so needs libcuda.so.1"),
        ("ld.lld: error: undefined symbol: foo()", "error: undefined symbol: foo()"),
        ("/a/libgpu.so: undefined reference to `ncclBcast'", "/a/libgpu.so: undefined reference to `ncclBcast'"),
        ("/x/bin/x86_64-conda-linux-gnu-ld: a.so: undefined reference to `b'", "a.so: undefined reference to `b'"),
        ("nvlink error   : Undefined reference to '_Z1fv' in 'a.o'", "nvlink error : Undefined reference to '_Z1"),
        ("ptxas /tmp/a.ptx, line 23; error   : Feature '.bf16' requires", "/tmp/a.ptx:23: error : Feature '.bf16'"),
        ("/tmp/cc1.s:12: Error: no such instruction: `vadd'", "/tmp/cc1.s:12: Error: no such instruction: `vadd'"),
        ("x86_64-conda-linux-gnu-c++: error: unrecognized", "x86_64-conda-linux-gnu-c++: error: unrecognized"),
        ('x.cpp:2:2: error: no\nTraceback (most recent call last):\n  File "/t.py", line 9\nKeyError: x',
         "x.cpp:2: error: no"),
        ("[1/3] x.o\nx.cpp:9:1: error: other step\n[2/3] install\nFAILED: all.util\ncd /w", "all.util: failed"),
        ("ok\nBus error (core dumped)", "Bus error (core dumped)"),
        ("python: ../x.c:23: f: Assertion `x' failed.\nAborted (core dumped)", "python: ../x.c:23: f: Assertion"),
        ("ninja: error: build.ninja:12: multiple rules generate x.so\nTraceback (most recent call last):\nE: x",
         "ninja: error: build.ninja:12: multiple rules"),
        ("ninja: fatal: posix_spawn: Argument list too long", "ninja: fatal: posix_spawn"),
        (f'Traceback (most recent call last):\n  File "/t.py", line 3\nImportError: libcuda.so.1\n{_IGNORED}',
         "/t.py:3: ImportError: libcuda.so.1"),
        ('Traceback (most recent call last):\n  File "/t.py", line 3\nsubprocess.TimeoutExpired: too late',
         "/t.py:3: subprocess.TimeoutExpired: too late"),
        ("F.\nFAILED tests/test_a.py::test_b - AssertionError: no", "tests/test_a.py: AssertionError: no"),
        (f"--- Logging error ---\n{_IGNORED}\nerror: no tests ran", "error: no tests ran"),
        ("\x1b[1mx.cpp:1:2: \x1b[0m\x1b[0;1;31merror: \x1b[0m\x1b[1mno 'y'\x1b[0m", "x.cpp:1: error: no 'y'"),
        ("x.c:1:9: \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[K[\x1b]8;;https://gcc.invalid\x1b\\-Wformat\x1b]8;;\x1b\\]",
         "x.c:1: error: [-Wformat]"),
        ('meson.build:12:0: ERROR: Dependency "foo" not found', 'meson.build:12: ERROR: Dependency "foo" not found'),
        ("error: expected `;`\n --> src/main.rs:4:5\nerror: could not compile", "src/main.rs:4: error: expected `;`"),
        (f"{_LINK}a.o:a.cpp:function main: error: undefined reference to 'f()'\ncollect2: error: ld returned 1",
         "a.o: undefined reference to 'f()'"),
        ((f"{_LINK}/usr/bin/ld: skipping incompatible /usr/lib32/libz.so when searching for -lz\n"
         "/usr/bin/ld: cannot find -lz"), "cannot find -lz"),
        (f"{_LINK}mold: fatal: library not found: cudart", "fatal: library not found: cudart"),
        (f"{_LINK}collect2: fatal error: ld terminated with signal 11", "collect2: fatal error: ld terminated"),
        (f"{_LINK}/usr/bin/ld: warning: relocation against `x' in read-only section\n/usr/bin/ld: cannot find -lz",
         "cannot find -lz"),
        ("x.cpp:1:1: warning: 'f' is deprecated\nx.h:3:6: note: declared here\ncp: cannot stat 'x.so': No such file",
         "cp: cannot stat 'x.so'"),
        ("FAILED: a.o\nc++ -c\nx.cpp:1:1: Warnung: x\nx.cpp:2:1: Fehler: nicht definiert\n  2 | x\n    | ^",
         "x.cpp:2: Fehler: nicht definiert"),
    ],
)  # fmt: skip
def test_errors_in_other_words(text: str, headline: str) -> None:
    found = error_in([plain(line) for line in text.splitlines()])
    assert found.headline.startswith(headline)


@pytest.mark.parametrize(
    "text",
    [
        "[12/30 9s] Building CXX object c10/error.cpp.o",
        "-- Performing Test HAS_ERROR - Failed",
        "In file included from /src/error.h:3,",
        "/src/x.cpp:3:1: warning: unused; error: is what this line only mentions",
        "/usr/bin/ld: a.o: in function `main':",
        "/usr/bin/ld: warning: libx.so, needed by liby.so, not found",
        "cc1plus: all warnings being treated as errors",
        "0 errors, 3 warnings",
        "/src/x.h:3:1: note: declared here",
        "./main.go:3:1: Note: declared here",
        "<source>:2:5: remark: loop not vectorized",
        "x.f90:3:1: Remark: loop not vectorized",
    ],
)
def test_what_is_no_error(text: str) -> None:
    assert first_error([text]) is None


def test_a_title_like_those_of_unittest_hides_no_traceback() -> None:
    title = ["ERROR: x (another)", "=" * 70]
    found = error_in([*title, "Traceback (most recent call last):", '  File "/a.py", line 3', "KeyError: 1"])
    assert found.headline == "/a.py:3: KeyError: 1"


def test_hostile_lines_take_no_time_and_no_room() -> None:
    long = [
        "FAILED: x.o",
        "c++ " + "-I/x " * 100_000,
        "x.cpp:1: error: " + "é" * 100_000,
        "a-" * 200_000 + "ld",
    ]
    found = error_in(long * 20)
    assert len(found.message) < 400
    assert max(map(len, found.excerpt)) < 300
    assert len(found.command) <= 100_000


@pytest.mark.parametrize(
    "line",
    [
        "HTTP status server error (530 <unknown status code>) for url (https://conda.invalid/x.conda)",
        "HTTP status client error (429 Too Many Requests) for url (https://conda.invalid/x.conda)",
        "urllib.error.HTTPError: HTTP Error 503: Service Unavailable",
        "CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://conda.invalid/noarch/repodata.json>",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "curl: (6) Could not resolve host: conda.invalid",
        "curl: (22) The requested URL returned error: 502",
        "error sending request for url (https://conda.invalid/linux-64/repodata.json.zst)",
        "dns error: failed to lookup address information: Temporary failure in name resolution",
        "httpx.ReadTimeout: The read operation timed out",
    ],
)
def test_a_network_that_failed_is_known_by_what_is_said_of_it(line: str) -> None:
    assert network_failed(["before", f"  {line}", "after"]) == line
    assert not network_failed([line, *["ran 500 tests"] * 100]), "it was mended since"


@pytest.mark.parametrize("line", ["AssertionError: 530 != 200", "HTTP/1.1 200 OK", "collected 502 items"])
def test_numbers_alone_are_no_network_fault(line: str) -> None:
    assert not network_failed([line])


def test_the_indentation_of_pip_and_of_a_pip_within_it_hides_no_step() -> None:
    found = error_in(lines("case-pip-ninja"))
    assert (found.outputs, found.command[:9]) == ("/w/build/temp/csrc/cpu/scatter_cpu.o", "c++ -MMD ")
    inner = (FAILURES / "case-pip-vv.log").read_text().splitlines()
    outer = "  Running command pip subprocess to install build dependencies"
    found = error_in([outer, *(f"  {line}" for line in inner)])
    assert found.headline.startswith("b.c:1: fatal error: nosuch_header_for_this.h")


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ("+ cmake --install b\n-- Installing: a.so\n+ test -f a.so", "failed: test -f a.so"),
        # a failed command in a substitution, and commands of the script's end
        ("++ git describe --exact-match\n+ version=", "failed: git describe --exact-match"),
        ("+ grep -q sm_120 list\n+ rm -rf /tmp/x\n+ exit 1", "failed: grep -q sm_120 list"),
        # the command's own words first, a known error in them best of all
        ("+ ./gen\nno schema for add.out", "failed: ./gen"),
        ("+ make\na.c:3:1: error: no\n+ rm -rf /tmp/x\n+ exit 2", "a.c:3: error: no"),
        ("+ git describe\nfatal: No names found\n+ true\n+ cp a.so b\ncp: cannot stat 'a.so': Is a directory",
         "cp: cannot stat 'a.so'"),
        # a comparison of texts is no trace
        ('Traceback (most recent call last):\n  File "/a.py", line 3\nAssertionError: no\n- b\n+ c\n\nRan 1 test',
         "/a.py:3: AssertionError: no"),
        # an error of a command that the script handled
        ("+ pip download x\nERROR: No matching distribution found for x\n+ true\n+ test -f x", "failed: test -f x"),
    ],
)  # fmt: skip
def test_the_last_command_of_a_trace_is_named_if_it_says_nothing(text: str, headline: str) -> None:
    found = error_in(text.splitlines())
    assert found.headline.startswith(headline)
    assert any(text.splitlines()[0] in line or headline.partition(": ")[2] in line for line in found.excerpt)


@pytest.mark.parametrize("blanks", ["      ", "         "])  # of uv to 0.9, and since
def test_the_indentation_of_uv_hides_no_step(blanks: str) -> None:
    built = [
        "[1/2] a.o",
        "FAILED: [code=1] a.o",
        "c++ -c a.cpp",
        "a.cpp:3:1: error: no",
        "ninja: build stopped",
    ]
    said = [
        "error: Failed to build `demo`",
        *(f"{blanks}{line}" for line in ["[stdout]", "running", "[stderr]", *built]),
    ]
    found = error_in([*said, "", "hint: a library is missing"])
    assert (found.headline, found.outputs) == ("a.cpp:3: error: no", "a.o")


def test_gcc_s_diagnostics_as_json_are_read() -> None:
    sarif = (
        '{"version": "2.1.0", "runs": [{"results": [{"level": "error", "message": {"text": "no \'x\'"}, "locations": '
        '[{"physicalLocation": {"artifactLocation": {"uri": "a.c"}, "region": {"startLine": 7}}}]}]}]}'
    )
    assert error_in(["FAILED: a.o", "cc -c a.c", sarif]).headline == "a.c:7: error: no 'x'"
    other = '{"version": 3, "runs": [{"results": [7]}]}'
    assert error_in([other, "error: of another program"]).headline == "error: of another program"


def test_an_echo_above_its_trace_is_the_failing_commands() -> None:
    # two pipes: what a quick command prints may come before the line that names it
    lines = [
        "error: it does not compile",
        "+ [[ a == a ]]",
        "+ echo 'error: it does not compile'",
        "+ exit 1",
    ]
    step = find_failed_step(lines)
    assert list(step.lines) == ["error: it does not compile"]
    silent = find_failed_step(["error: harmless, of before", "+ test -f x", "+ exit 1"])
    assert (list(silent.lines), silent.command) == ([], "test -f x")
