"""The folders in which CMake searches, and the packages that own files, also files behind links."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from small_files import program, write

from cmake_python_swap.ninja_dry_run import Edge, NinjaError
from tree_inputs import aliases, compare, generators, inputs, record, search, shadowing, snapshot, toolchain
from tree_inputs.contents import ABSENT, UNKNOWN, Contents, digest_of, files_below, follow
from tree_inputs.imports import find_imported
from tree_inputs.inputs import Inputs
from tree_inputs.owners import Owner, Owners
from tree_inputs.record import Source
from tree_inputs.search import name_folders
from tree_inputs.shadowing import Shadows, find_probes
from tree_inputs.toolchain import find_toolchain
from tree_inputs.tree import LINK, Headers, Tree

#: Places of a prefix in which a new name may change the result of CMake's searches.
SEARCHED = (
    "bin/nvcc",
    "include/zstd.h",
    "lib/libzstd.so",
    "lib64/libzstd.so",
    "lib/aarch64-linux-gnu/libzstd.so",
    "share/zstd",
    "lib/cmake/zstd/zstdConfig.cmake",
    "lib/pkgconfig/libzstd.pc",
    "share/cmake/zstd/zstdConfig.cmake",
)


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("place", ["host", "build", "usr"])
@pytest.mark.parametrize("change", ["appears", "vanishes"])
def test_a_name_that_cmake_may_find_counts_in_each_environment(
    change: str, place: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Debian root's libraries are in /usr."""
    environment = {"PREFIX": str(tmp_path / "host"), "BUILD_PREFIX": str(tmp_path / "build")}
    monkeypatch.setattr(search, "_SYSTEM", (str(tmp_path / "usr"),))
    for prefix in ("host", "build", "usr"):
        for searched in SEARCHED:
            write((tmp_path / prefix / searched).parent / "other")
    path = tmp_path / place / name
    if change == "vanishes":
        write(path)
    before = name_folders(environment)
    assert name_folders(environment) == before
    if change == "vanishes":
        path.unlink()
    else:
        write(path)
    after = name_folders(environment)
    changed = [folder for folder in before if after.get(folder) != before[folder]]
    assert changed
    assert all(path.is_relative_to(folder) for folder in changed)


def test_a_configuration_reads_files_of_cmake_and_programs_that_run_it(tmp_path: Path) -> None:
    """The Python of this recipe's own steps writes settings into the tree."""
    names = ("env/FindBLAS.cmake", "env/libblas.so", "bin/cmake", "bin/ninja", "tree/CMakeLists.txt")
    files = {name: str(write(tmp_path / name)) for name in names}
    cache = {"BLAS": f"debug;{files[names[1]]};/missing", "CMAKE_COMMAND": files["bin/cmake"]}
    tree = SimpleNamespace(
        absolute=str, cmake_files=[files[names[0]], files[names[4]]], cache=cache, ninja=files["bin/ninja"],
        is_outside=lambda path: not path.startswith(str(tmp_path / "tree")),
    )  # fmt: skip
    read = Inputs(tree=cast(Any, tree), toolchain=cast(Any, None)).of_configure()
    assert set(read) == {*(files[name] for name in names[:4]), sys.executable}


def test_a_name_below_another_folder_changes_no_search(tmp_path: Path) -> None:
    write(tmp_path / "include/fmt/core.h")
    before = name_folders({"PREFIX": str(tmp_path)})
    write(tmp_path / "include/fmt/format.h")
    assert name_folders({"PREFIX": str(tmp_path)}) == before


def conda_package(prefix: Path, name: str, *files: str) -> None:
    write(prefix / "conda-meta" / f"{name}-1-0.json", json.dumps({"name": name, "files": files}))


def debian_package(system: Path, name: str, *files: str) -> None:
    write(system / "var/lib/dpkg/info" / f"{name}.list", "".join(f"{file}\n" for file in files))


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    """Packages of both environments and of the system; links of one lead to files of another."""
    host = tmp_path / "host"
    write(host / "lib/libone.so.1.2")
    (host / "lib/libone.so.1").symlink_to("libone.so.1.2")
    (host / "lib/libone.so").symlink_to("libone.so.1")
    write(host / "include/one-1/one.h")
    (host / "include/one").symlink_to("one-1")
    conda_package(host, "libone", "lib/libone.so.1", "lib/libone.so.1.2")
    conda_package(host, "libone-devel", "lib/libone.so", "include/one")
    conda_package(host, "one-headers", "include/one-1/one.h")
    write(tmp_path / "build/bin/cmake")
    conda_package(tmp_path / "build", "cmake", "bin/cmake")
    write(host / "conda-meta/damaged-1-0.json", "{")
    debian_package(tmp_path / "system", "libtwo1:amd64", "/lib/libtwo.so.1")
    debian_package(tmp_path / "system", "libtwo-dev:amd64", "/usr/lib/libtwo.a")
    return Owners({"PREFIX": str(host), "BUILD_PREFIX": str(tmp_path / "build")}, tmp_path / "system")


OWNED: Mapping[str, tuple[str, ...]] = {
    "host/lib/libone.so.1.2": ("libone",),
    "host/lib/libone.so.1": ("libone",),
    "host/lib/libone.so": ("libone", "libone-devel"),
    "host/include/one-1/one.h": ("one-headers",),
    "host/include/one/one.h": ("one-headers",),
    "host/include/one/../one-1/one.h": ("one-headers",),
    "build/bin/cmake": ("cmake",),
    "host/lib/libthree.so": (),
}


@pytest.mark.parametrize("place", OWNED)
def test_a_file_belongs_to_its_own_package_and_to_that_of_a_link_to_it(
    place: str, owners: Owners, tmp_path: Path
) -> None:
    """A package that is missing here would change without a word in the plan."""
    found = owners.of(str(tmp_path / place))
    assert {owner.name for owner in found} == set(OWNED[place])
    source = Source.BUILD if place.startswith("build") else Source.HOST
    assert {owner.source for owner in found} <= {source}


@pytest.mark.parametrize("path", ["/lib/libtwo.so.1", "/usr/lib/libtwo.so.1"])
def test_a_file_of_debian_has_the_owner_of_either_of_its_names(path: str, owners: Owners) -> None:
    assert owners.of(path) == {Owner(Source.SYSTEM, "libtwo1")}
    assert owners.of("/lib/libtwo.a") == {Owner(Source.SYSTEM, "libtwo-dev")}


#: Files that a compiler starts or reads without being told, with the outputs that depend on them.
BROUGHT = {
    "cc1plus": ("CXX",),
    "as": ("CXX",),
    "specs": ("CXX", LINK),
    "ld": (LINK,),
    "collect2": (LINK,),
    "crt1.o": (LINK,),
    "crtbeginS.o": (LINK,),
    "libgcc.a": (LINK,),
    "libc_nonshared.a": (LINK,),
    "libstdc++.so": (LINK,),
}


@pytest.mark.parametrize("name", BROUGHT)
def test_a_file_that_a_compiler_brings_counts_for_its_outputs(name: str, tmp_path: Path) -> None:
    folders = f"programs: ={tmp_path}/parts\\nlibraries: ={tmp_path}/parts"
    compiler = program(tmp_path / "bin/c++", f"printf '{folders}\\n'")
    write(
        tmp_path / "build/CMakeFiles/4.0/CMakeCXXCompiler.cmake",
        f'set(CMAKE_CXX_COMPILER "{compiler}")\n',
    )
    brought = write(tmp_path / "parts" / name, b"\x7fELF")
    tree = SimpleNamespace(build=str(tmp_path / "build"))
    programs = find_toolchain(cast(Any, tree)).programs
    assert {kind for kind, paths in programs.items() if str(brought) in paths} == set(BROUGHT[name])


@pytest.mark.parametrize("change", ["content", "name", "folder", "contents that change places"])
def test_a_folder_of_headers_is_its_names_folders_and_contents(change: str, tmp_path: Path) -> None:
    one = write(tmp_path / "include/one/config.h", "1")
    two = write(tmp_path / "include/two/config.h", "2")
    folder = str(tmp_path / "include")
    before = digest_of(Contents().below(folder))
    match change:
        case "content":
            one.write_text("3")
        case "name":
            one.rename(one.with_name("other.h"))
        case "folder":
            (tmp_path / "include/three").mkdir()
            one.rename(tmp_path / "include/three/config.h")
        case _:
            one.write_text("2")
            two.write_text("1")
    assert digest_of(Contents().below(folder)) != before


def test_a_digest_of_files_does_not_depend_on_their_order() -> None:
    assert digest_of({"/a": "1", "/b": "2"}) == digest_of({"/b": "2", "/a": "1"})


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path / "include/a.h")
    write(tmp_path / "elsewhere/b.h")
    (tmp_path / "include/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "include")
    (tmp_path / "include/itself").symlink_to(".")
    (tmp_path / "include/c.h").symlink_to("a.h")
    (tmp_path / "include/gone.h").symlink_to("nothing")
    found = list(files_below(str(tmp_path / "include")))
    below = ["a.h", "c.h", "gone.h", "linked/b.h"]
    assert sorted(os.path.relpath(path, tmp_path / "include") for path in found) == below


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/env/linked.h", "/env/one.h"),
        ("/link/pack/deep/a.h", "/env/include/pack/deep/a.h"),
        ("/link/way/a.h", "/other/a.h"),  # the longest link counts
        ("/linked/a.h", "/linked/a.h"),
        ("/env/a.h", "/env/a.h"),
    ],
)
def test_a_path_by_recorded_links_leads_to_the_file_of_that_time(path: str, real: str) -> None:
    links = {"/env/linked.h": "/env/one.h", "/link": "/env/include", "/link/way": "/other"}
    assert follow(path, links) == real


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("import pack.deep.part", ["pack/__init__.py", "pack/deep/__init__.py", "pack/deep/part.py"]),
        (
            "from pack.deep import part, value",
            ["pack/__init__.py", "pack/deep/__init__.py", "pack/deep/part.py"],
        ),
        ("from pack import *", ["pack/__init__.py"]),
        ("import pack", ["pack/__init__.py"]),
        ("def f():\n    import compiled", ["compiled.cpython-312.so"]),
        ("import helper", ["tools/helper.py", "chained.py"]),  # its own folder is the first
        ("from . import helper", ["tools/helper.py", "chained.py"]),
        ("from .helper import value", ["tools/helper.py", "chained.py"]),
        ("from .. import chained", ["chained.py"]),
        ("from .chained import value", []),
        ("import twice", ["twice.py"]),  # the first folder that has it
        ("import unknown", []),
    ],
)
def test_all_modules_that_a_script_imports_are_found(script: str, found: list[str], tmp_path: Path) -> None:
    site = tmp_path / "site"
    modules = {
        "pack/__init__.py": "", "pack/deep/__init__.py": "", "pack/deep/part.py": "", "helper.py": "",
        "tools/helper.py": "import chained", "chained.py": "", "compiled.cpython-312.so": "import no_code",
        "no_code.py": "", "twice.py": "", "tools/make.py": script,
    }  # fmt: skip
    for name, text in modules.items():
        write(site / name, text)
    write(tmp_path / "second/twice.py")
    start = str(site / "tools/make.py")
    imported = find_imported([start], [str(site), str(tmp_path / "second")]) - {start}
    assert {os.path.relpath(path, site) for path in imported} == set(found)


def test_files_that_were_hashed_are_closed(tmp_path: Path) -> None:
    """A tree reads thousands of them."""
    paths = [str(write(tmp_path / name)) for name in "ab"]
    os.mkfifo(tmp_path / "pipe")
    before = psutil.Process().num_fds()
    contents = Contents()
    hashes = {
        contents.of(path) for path in (*paths, str(tmp_path / "pipe"), str(tmp_path), str(tmp_path / "gone"))
    }
    assert hashes == {hashlib.sha256().hexdigest(), ABSENT}
    assert psutil.Process().num_fds() == before


@pytest.mark.parametrize("place", ["named", "own", "."])
def test_a_header_that_appears_where_the_compiler_searches_concerns_its_objects(
    place: str, tmp_path: Path
) -> None:
    """In a folder that its command names, in one of its own, such as /usr/local/include, and above one ("../")."""
    used = write(tmp_path / "environment/include/pack/value.h")
    named = str(tmp_path / "named")
    readers = {str(used): 0b01}
    tree = SimpleNamespace(
        made={"user.cpp.o": "CXX", "plain.c.o": "C"},
        language=lambda edge: edge,
        include_folders=lambda edge: {"CXX": (named, str(tmp_path / "environment/include")), "C": ()}[edge],
        real=lambda path: path,
    )
    toolchain = SimpleNamespace(include_folders={"CXX": (f"{tmp_path}/x/../own",), "C": ()})
    headers = SimpleNamespace(objects=("user.cpp.o", "plain.c.o"), readers=readers)
    shadows = Shadows(cast(Any, tree), cast(Any, toolchain), cast(Any, headers), {}, {})
    appeared = write(tmp_path / place / "pack/value.h")
    assert shadows.concerned(str(appeared)) == 0b01
    assert shadows.candidates() == {str(used): 0, str(appeared): 0b01}
    assert shadows.concerned(str(tmp_path / "elsewhere/pack/value.h")) == 0


@pytest.mark.parametrize("modules", [UNKNOWN, ABSENT, "1", "2"])
def test_a_python_whose_modules_are_unknown_counts_as_another(
    modules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before, it may not run, and then nothing is known of its code generators."""
    record = SimpleNamespace(checks=SimpleNamespace(generators={"/python": modules}))
    found = SimpleNamespace(record=record, date=0)
    monkeypatch.setattr(Inputs, "of", lambda _: None)
    monkeypatch.setattr(generators, "digests", lambda *_: {"/python": modules})
    stale = compare._Stale(cast(Any, None), cast(Any, None), cast(Any, found), {})
    assert stale._changed_pythons == (frozenset() if modules in ("1", "2") else {"/python"})


@pytest.mark.parametrize(
    ("before", "now", "date", "expected"),
    [
        ("1", "1", 0, "1"),
        ("1", "2", 0, UNKNOWN),
        ("1", ABSENT, 0, UNKNOWN),
        (UNKNOWN, "1", 1, UNKNOWN),
        (UNKNOWN, "1", 1 << 62, "1"),
        (UNKNOWN, None, 1 << 62, UNKNOWN),
    ],
)
def test_a_file_has_the_content_that_it_had_during_the_whole_compile(
    before: str, now: str | None, date: int, expected: str, tmp_path: Path
) -> None:
    """A file that the start did not record has its content since then if no program has changed it."""
    path = tmp_path / "a.h"
    if now is not None:
        path.touch()
        os.utime(path, ns=(0, 0))  # as packages set it
    started = SimpleNamespace(date=date, record=SimpleNamespace(content=lambda _: before))
    contents = SimpleNamespace(of=lambda _: now or ABSENT)
    assert snapshot._unchanged(str(path), cast(Any, started), cast(Any, contents)) == expected


def test_folders_and_pythons_that_changed_during_a_compile_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "include/a.h")
    include = str(tmp_path / "include")
    content = digest_of(Contents().below(include))
    monkeypatch.setattr(snapshot, "name_folders", lambda _: {"/same": "1", "/other": "2", "/new": "3"})
    for before in (content, "another"):
        folders = {"/same": "1", "/other": "1", "/gone": "1", include: before}
        checks = SimpleNamespace(include_folders=(include,), generators={"/same": "1", "/other": "1"})
        started = cast(Any, SimpleNamespace(record=SimpleNamespace(folders=folders, checks=checks)))
        known = snapshot._unchanged_folders(started, {}, Contents())
        of_include = content if before == content else UNKNOWN
        assert known == {"/same": "1", "/other": UNKNOWN, "/gone": UNKNOWN, include: of_include}
        pythons = snapshot._unchanged_pythons(started, {"/same": "1", "/other": "2", "/new": "3"})
        assert pythons == {"/same": "1", "/other": UNKNOWN, "/new": UNKNOWN}


def test_a_record_that_fails_leaves_no_start_for_later_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / record.STARTED
    record.write(started, record.Record(files={}, folders={}, checks=record.Checks()))
    with pytest.raises(NinjaError):
        snapshot.record(tmp_path, {})
    assert not started.exists()
    assert snapshot.record(tmp_path, {}) is None


def test_only_files_outside_the_tree_that_no_object_read_are_harmless() -> None:
    tree = SimpleNamespace(is_outside=lambda path: not path.startswith("/tree/"))
    shadows = SimpleNamespace(candidates=lambda: {"/env/a.h": 1, "/env/read.h": 0, "/tree/b.h": 1}, tree=tree)
    assert list(snapshot._harmless(cast(Any, shadows), {"/env/read.h": "1"})) == ["/env/a.h"]


def test_the_role_of_a_package_is_what_reads_its_files(tmp_path: Path) -> None:
    """Of 20 objects, a share of 95 % is not nearly all."""
    linked = str(write(tmp_path / "liblinked.so"))
    every = (1 << 20) - 1
    headers = Headers(
        objects=tuple(f"{number}.o" for number in range(20)),
        readers={"/std.h": every, "/much.h": every >> 1, "/one.h": 1, "/cc.h": 1},
    )
    owned = {
        "/std.h": "sysroot", "/much.h": "much", "/one.h": "one", "/cc": "gcc", "/cc.h": "gcc",
        linked: "linked", "/gone.so": "gone", "/x.cmake": "found",
    }  # fmt: skip
    tree = SimpleNamespace(
        statements=("link", "CXX"),
        language={"link": LINK, "CXX": "CXX"}.__getitem__,
        made={name: name for name in headers.objects},
        kind=lambda _: record.Kind.CORE,
    )
    read = SimpleNamespace(
        tree=tree,
        languages={"CXX": ("/cc",)},
        of_statement=lambda edge: (linked, "/gone.so") if edge == "link" else ("/x.cmake",),
    )
    owners = SimpleNamespace(of=lambda path: {Owner(Source.HOST, owned[path])})
    found = snapshot._packages(cast(Any, read), headers, cast(Any, owners), set(owned))
    roles = {
        package.name: (package.role.name, package.objects[record.Kind.CORE], package.links)
        for package in found
    }
    assert roles == {
        "found": ("CONFIGURE", 0, 0),
        "gcc": ("COMPILERS", 1, 0),
        "gone": ("CONFIGURE", 0, 0),
        "linked": ("OBJECTS", 0, 1),
        "much": ("OBJECTS", 19, 0),
        "one": ("OBJECTS", 1, 0),
        "sysroot": ("COMPILERS", 20, 0),
    }


def test_a_header_that_cannot_be_read_asks_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build's compilers tell whether they can read it."""
    headers = [str(write(tmp_path / name, f"#if __has_include(<{name}>)\n")) for name in ("a.h", "b.h")]

    def refuse(path: str, mode: str) -> Any:
        if path == headers[0]:
            raise PermissionError(13, "Permission denied", path)
        return open(path, mode)

    monkeypatch.setattr(shadowing, "open", refuse, raising=False)
    assert find_probes(headers) == {headers[1]: ("b.h",)}


@pytest.mark.parametrize("script", ["import yaml", "import (", "import yaml\0"])
def test_a_generator_that_cannot_be_parsed_may_import_any_module(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("site/yaml.py", "site/idna.py", "lib/python3/os.py", "bin/python3"):
        write(tmp_path / name)
    write(tmp_path / "tree/generate.py", script)
    library = str(tmp_path / "lib/python3")
    monkeypatch.setattr(generators, "_ask", lambda _: [library, library, str(tmp_path / "site")])
    monkeypatch.setattr(generators, "libraries_of", lambda _: [])
    tree = Tree(
        build=str(tmp_path / "tree/build"), root=str(tmp_path / "tree"), cache={}, graph=cast(Any, None)
    )
    python = str(tmp_path / "bin/python3")
    digests = []
    for text in ("", "changed"):
        write(tmp_path / "site/idna.py", f"# {text}")
        digests.append(generators.digest(tree, python, [[python, "../generate.py"]], Contents()))
    assert (digests[0] == digests[1]) == (script == "import yaml")


def test_a_toolchain_has_all_that_its_compilers_and_link_tools_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assembler may be in $PATH, and libc.so be a script that names the library."""
    top = str(tmp_path)
    compiler = program(tmp_path / "bin/c++", f"echo 'programs: ={top}/parts'; echo 'libraries: ={top}/parts'")
    for name in ("bin/as", "parts/cc1plus", "bin/ar", "parts/ld", "parts/libc.so.6", "parts/crt1.o"):
        program(tmp_path / name, "")
    write(tmp_path / "parts/libc.so", f"GROUP ( {top}/parts/libc.so.6 )\n")
    settings = f"""set(CMAKE_CXX_COMPILER "{compiler}")
set(CMAKE_AR "{top}/bin/ar")
set(CMAKE_RANLIB "{top}/bin/missing")
set(CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES "/gcc/include;/usr/include")
set(CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES {top}/parts)
set(CMAKE_CXX_IMPLICIT_LINK_LIBRARIES "stdc++;m;stdc++")
"""
    write(tmp_path / "build/CMakeFiles/4.0/CMakeCXXCompiler.cmake", settings)
    write(tmp_path / "build/CMakeFiles/4.0/CMakeFortranCompiler.cmake", "set(CMAKE_Fortran_COMPILER)\n")
    monkeypatch.setenv("PATH", f"{top}/bin")
    monkeypatch.setattr(toolchain, "libraries_of", lambda found: [f"{found[0]}.library"])
    found = find_toolchain(cast(Any, SimpleNamespace(build=f"{top}/build")))
    assert found.programs.keys() == {"CXX", LINK}
    compiling = {os.path.relpath(path, top) for path in found.programs["CXX"]}
    assert compiling == {"bin/c++", "bin/c++.library", "parts/cc1plus", "bin/as"}
    linking = {os.path.relpath(path, top) for path in found.programs[LINK]}
    assert linking == {"bin/c++", "parts/ld", "bin/ar", "parts/libc.so", "parts/libc.so.6", "parts/crt1.o"}
    assert found.include_folders == {"CXX": ("/gcc/include", "/usr/include")}
    assert (found.link_folders, found.linked) == ((f"{top}/parts",), ("stdc++", "m"))


def test_libraries_of_programs_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects do not depend on the machine's own C library."""
    said = """/env/bin/cc1plus:
\tlinux-vdso.so.1 (0x00007ffc)
\tlibmpfr.so.6 => /env/lib/libmpfr.so.6 (0x00007f)
\tlibgone.so.1 => not found
\tlibstdc++.so.6 => /env/lib/libstdc++.so.6 (0x00007f)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f)
/env/bin/as:
\tlibmpfr.so.6 => /env/lib/libmpfr.so.6 (0x00007f)
\tlibcrypt.so.1 => /env/lib/libcrypt.so.1 (0x00007f)
"""
    monkeypatch.setattr(toolchain, "_output", lambda _: said)
    libraries = ["/env/lib/libmpfr.so.6", "/env/lib/libcrypt.so.1"]
    assert list(toolchain.libraries_of(["/env/bin/cc1plus", "/env/bin/as"])) == libraries


GENERATORS_NINJA = """\
rule CUSTOM_COMMAND
  command = $COMMAND
rule CXX_COMPILER__user
  command = c++
build one.h: CUSTOM_COMMAND
  COMMAND = cd {top}/tree/build && {top}/bin/{python} ../one.py && {top}/bin/cmake -E touch one.h
build two.h: CUSTOM_COMMAND
  COMMAND = {top}/bin/{python} ../two.py && protoc two.proto
build three.h: CUSTOM_COMMAND
  COMMAND = {top}/bin/{python} -m tool.gen
build four.h: CUSTOM_COMMAND
  COMMAND = {top}/bin/{python} -m pack
build user.o: CXX_COMPILER__user
  COMMAND = {top}/bin/python9 ../user.py
"""
#: Files that generators read, and others, with the answer whether a change of the file is one of the Python's.
GENERATORS_READ = {
    "bin/PYTHON": True,
    "lib/libpython.so": True,
    "lib/python3/os.py": True,
    "lib/python3/json/decoder.py": True,
    "lib/python3/site-packages/unused.py": False,
    "lib/python3/test/test_os.py": False,
    "lib64/python3/array.so": True,
    "site/yaml.py": True,  # two.py imports it
    "site/deep/__init__.py": True,  # one.py imports a module of it
    "site/deep/part.cpython-312.so": True,
    "site/tool/gen.py": True,
    "site/pack/__main__.py": True,
    "site/of_pack.py": True,  # pack/__main__.py imports it
    "site/unused.py": False,
    "bin/cmake": False,
    "bin/protoc": False,
}


@pytest.fixture
def generators_tree(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree with several generators; the parameter is the name of their Python."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in GENERATORS_READ:
        program(tmp_path / name.replace("PYTHON", request.param), "")
    write(tmp_path / "site/pack/__main__.py", "import of_pack\n")
    for name in ("lib/python3/os.py", "site/yaml.py", "site/tool/gen.py", "site/deep/__init__.py"):
        write(tmp_path / name)
    write(tmp_path / "tree/one.py", "from deep import part\n")
    write(tmp_path / "tree/two.py", "import yaml\n")
    build = tmp_path / "tree/build"
    write(build / "build.ninja", GENERATORS_NINJA.format(top=tmp_path, python=request.param))
    folders = [str(tmp_path / name) for name in ("lib/python3", "lib64/python3", "lib/python3", "site")]
    monkeypatch.setattr(generators, "_ask", lambda _: folders)
    monkeypatch.setattr(generators, "libraries_of", lambda _: [str(tmp_path / "lib/libpython.so")])
    return Tree.load(build)


@pytest.mark.parametrize("generators_tree", ["python3.13t"], indirect=True)
def test_a_python_counts_with_all_that_its_scripts_read(generators_tree: Tree, tmp_path: Path) -> None:
    """Scripts of all its commands, also those that it runs by the name of a module or package."""
    before = generators.digests(generators_tree, Contents())
    (python,) = before
    counted = {}
    for name in GENERATORS_READ:
        path = tmp_path / name.replace("PYTHON", os.path.basename(python))
        content = path.read_text()
        path.write_text(content + "# changed\n")
        counted[name] = generators.digests(generators_tree, Contents()) != before
        path.write_text(content)
    assert counted == GENERATORS_READ
    assert python.startswith(f"{tmp_path}/bin/python")


@pytest.mark.parametrize("generators_tree", ["python3.12"], indirect=True)
def test_each_program_of_a_command_counts_for_its_outputs(generators_tree: Tree, tmp_path: Path) -> None:
    """CMake's own commands write no content."""
    files = {
        edge.outputs[0]: [
            os.path.relpath(path, tmp_path) for path in generators.files_of(generators_tree, edge)
        ]
        for edge in generators_tree.statements
        if not generators_tree.language(edge)
    }
    python = "bin/python3.12"
    assert files == {
        "one.h": [python],
        "two.h": [python, "bin/protoc"],
        "three.h": [python],
        "four.h": [python],
    }


def test_a_python_that_does_not_run_has_unknown_modules(tmp_path: Path) -> None:
    for script in ("exit 1", "echo no JSON"):
        python = str(program(tmp_path / "python3", script))
        assert generators.digest(cast(Any, None), python, [], Contents()) == UNKNOWN


@pytest.mark.parametrize("is_link", [True, False])
def test_a_link_reads_libraries_that_its_linker_finds_and_places_that_it_searched_before(
    is_link: bool, tmp_path: Path
) -> None:
    """A library that appears in such a place would be taken instead."""
    named = (
        "lib/libin.so", "flags.map", "gcc/libone.a", "lib/libwhole.a", "lib/libscript.so", "lib/libscript.so.1",
        "gcc/libgcc_s.so", "gcc/libone.dylib",
    )  # fmt: skip
    for name in named:
        write(tmp_path / name, b"\x7fELF")
    write(tmp_path / "lib/libscript.so", "INPUT ( libscript.so.1 )")
    top = str(tmp_path)
    variables = {
        "LINK_FLAGS": f"-Wl,--version-script,{top}/flags.map",
        "LINK_PATH": f"-L{top}/first -Lown",
        "LINK_LIBRARIES": f"-Wl,--whole-archive,{top}/lib/libwhole.a -lone {top}/lib/libscript.so",
    }
    edge = Edge(outputs=("say",), inputs=("a.o", f"{top}/lib/libin.so"), rule="", variables=variables)
    tree = SimpleNamespace(
        absolute=lambda name: os.path.join("/tree", name), language=lambda _: LINK if is_link else "CXX",
        is_outside=lambda path: not path.startswith("/tree/"), graph=SimpleNamespace(expand=lambda text, _: text),
    )  # fmt: skip
    compilers = SimpleNamespace(link_folders=(f"{top}/gcc",), linked=("gcc_s",))
    found = search.LinkSearch(cast(Any, tree), cast(Any, compilers)).inputs(edge)
    searched = {f"first/lib{name}.{end}" for name in ("one", "gcc_s") for end in ("so", "a", "dylib")}
    expected = {*named[:-1], *searched, "gcc/libone.so"} if is_link else {"lib/libin.so"}
    assert {os.path.relpath(path, tmp_path) for path in found} == expected


def test_folders_of_headers_are_those_of_commands_and_compilers_without_parts_of_others(
    tmp_path: Path,
) -> None:
    """The programs of a prefix are no headers."""
    for name in (
        "env/include/sub",
        "env/include-more",
        "prefix/bin",
        "prefix/include",
        "gcc/include",
        "tree/own",
    ):
        (tmp_path / name).mkdir(parents=True)
    top = str(tmp_path)
    by_edge = {
        1: (f"{top}/env/include/sub", f"{top}/env/include", f"{top}/prefix", f"{top}/missing"),
        2: (f"{top}/env/include-more", f"{top}/tree/own", f"{top}/prefix/include"),
    }
    tree = SimpleNamespace(
        statements=(1, 2),
        include_folders=by_edge.__getitem__,
        is_outside=lambda path: not path.startswith(f"{top}/tree/"),
    )
    toolchain = SimpleNamespace(include_folders={"CXX": (f"{top}/gcc/lib/../include",), "C": ()})
    folders = search.include_folders(cast(Any, tree), cast(Any, toolchain))
    kept = ["env/include", "env/include-more", "gcc/include", "prefix/include"]
    assert [os.path.relpath(folder, tmp_path) for folder in folders] == kept
    searched = search.searched_folders(cast(Any, tree), cast(Any, toolchain))
    assert [os.path.relpath(folder, tmp_path) for folder in searched] == sorted(
        [*kept, "env/include/sub", "prefix"]
    )


def test_all_that_nvcc_starts_and_reads_counts_for_its_objects(tmp_path: Path) -> None:
    """Also the host compiler that CMake chose, with its own parts."""
    of_cuda = {"bin/nvcc.profile", "bin/ptxas", "bin/cudafe++", "nvvm/cicc", "nvvm/libdevice.10.bc"}
    for name in (*of_cuda, "host/cc1plus", "bin/rm", "bin/notes.txt"):
        program(tmp_path / name, "exit 0")
    program(tmp_path / "host/g++", f"echo 'programs: ={tmp_path}/host'")
    plan = f"""#$ _HERE_={tmp_path}/bin
#$ NVVMIR_LIBRARY_DIR={tmp_path}/nvvm
#$ CICC_PATH={tmp_path}/nvvm
#$ PATH=$_HERE_:{tmp_path}/bin:{os.environ["PATH"]}
#$ cudafe++ --c++17 notes.txt
#$ "$CICC_PATH/cicc" -arch compute_90
#$ ptxas -arch=sm_90
#$ no-such-program x
#$ rm notes.txt
{tmp_path}/bin/notes.txt: a note of another program
"""
    write(tmp_path / "plan", plan)
    host = '[ "$6" = -ccbin ] && echo "#\\$ \\"$7\\" -E"'
    nvcc = program(
        tmp_path / "bin/nvcc", f'[ "$1" = --dryrun ] || exit 1; cat "{tmp_path}/plan" >&2; {host} >&2'
    )
    settings = f'set(CMAKE_CUDA_COMPILER "{nvcc}")\nset(CMAKE_CUDA_HOST_COMPILER "{tmp_path}/host/g++")\n'
    write(tmp_path / "build/CMakeFiles/4.0/CMakeCUDACompiler.cmake", settings)
    found = find_toolchain(cast(Any, SimpleNamespace(build=str(tmp_path / "build")))).programs["CUDA"]
    own = {
        os.path.relpath(path, tmp_path)
        for path in found
        if path.startswith(str(tmp_path)) and os.path.exists(path)
    }
    assert own == {*of_cuda, "bin/nvcc", "host/g++", "host/cc1plus"}


@pytest.mark.parametrize("text", ["command", "LAUNCHER"])
def test_a_launcher_of_the_recipe_counts_for_the_objects_that_it_compiles(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Path(inputs.__file__).resolve().parents[1]
    launchers = (str(recipe / "compile_cached.sh"), str(recipe / "compile_at_O0.sh"))
    words = f"{' '.join(launchers)} c++ -c in.cpp {recipe}/no-launcher"
    edges = [
        SimpleNamespace(
            rule="one", variables={"LAUNCHER": words} if text == "LAUNCHER" else {}, language="CXX"
        ),
        SimpleNamespace(rule="two", variables={}, language="C"),
        SimpleNamespace(rule="one", variables={}, language=""),
    ]
    rules = {"one": {"command": words if text == "command" else "$LAUNCHER c++"}}
    tree = SimpleNamespace(
        statements=edges, language=lambda edge: edge.language, graph=SimpleNamespace(rules=rules)
    )
    monkeypatch.setattr(inputs, "find_toolchain", lambda _: SimpleNamespace(programs={"CXX": ("/c++",)}))
    assert Inputs.of(cast(Any, tree)).languages == {"CXX": ("/c++", *launchers), "C": ()}


@pytest.mark.parametrize(
    ("language", "files"),
    [(LINK, ("/env/libx.so",)), ("CXX", ("/env/libx.so",)), ("", ("/env/libx.so", "/env/bin/protoc"))],
)
def test_a_statement_that_generates_sources_reads_the_programs_of_its_command(
    language: str, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler's programs count for all outputs of their language."""
    monkeypatch.setattr(search.LinkSearch, "inputs", lambda *_: ("/env/libx.so",))
    monkeypatch.setattr(generators, "files_of", lambda *_: iter(["/env/bin/protoc", "/env/libx.so"]))
    tree = SimpleNamespace(
        language=lambda _: language,
        statements=("statement",),
        cmake_files=(),
        cache={},
        ninja="",
        is_outside=bool,
        absolute=str,
    )
    read = Inputs(tree=cast(Any, tree), toolchain=cast(Any, None), languages={"CXX": ("/env/cc1plus",)})
    assert read.of_statement(cast(Any, "statement")) == files
    assert {*files, "/env/cc1plus"} <= read.all()


def replaced(document: Any, *, by: object) -> Iterator[Any]:
    """Yield a document as often as it has values, with another one of them replaced each time."""
    yield by
    parts: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        parts = [*document.items()]
    elif isinstance(document, list):
        parts = [*enumerate(document)]
    for key, value in parts:
        for other in replaced(value, by=by):
            changed = copy.copy(document)
            changed[key] = other
            yield changed


def test_a_folder_of_headers_behind_a_link_is_a_link_itself(tmp_path: Path) -> None:
    """Of ``/usr/local/cuda``, for example, which another installation of CUDA sets."""
    write(tmp_path / "cuda-13.0/include/cuda.h", "")
    (tmp_path / "cuda").symlink_to("cuda-13.0")
    tree = cast(Tree, SimpleNamespace(root=str(tmp_path / "cuda/tree")))
    folder = str(tmp_path / "cuda/include")
    found = aliases.find_aliases(tree, [folder, str(tmp_path / "cuda-13.0/include")], {})
    assert found == {
        folder: str(tmp_path / "cuda-13.0/include"),
        tree.root: str(tmp_path / "cuda-13.0/tree"),
    }
    assert not aliases.moved(found)
    (tmp_path / "cuda").unlink()
    (tmp_path / "cuda").symlink_to("cuda-13.1")
    assert set(aliases.moved(found)) == set(found)


def test_all_links_to_headers_are_known(tmp_path: Path) -> None:
    """Also those in the tree, and the link by which compile_cached.sh names the environment."""
    write(tmp_path / "env/include/one.h")
    (tmp_path / "env/include/linked.h").symlink_to("one.h")
    (tmp_path / "link").symlink_to("env")
    (tmp_path / "tree/own").mkdir(parents=True)
    (tmp_path / "tree/own/headers").symlink_to(tmp_path / "env/include")
    environment = {"BUILD_ENV_LINK": str(tmp_path / "link")}
    tree = SimpleNamespace(root=str(tmp_path / "tree"))
    found = aliases.find_aliases(cast(Any, tree), [str(tmp_path / "env/include")], environment)
    expected = {
        "link": "env",
        "env/include/linked.h": "env/include/one.h",
        "tree/own/headers": "env/include",
        "tree/own/headers/linked.h": "env/include/one.h",
    }
    top = str(tmp_path)
    assert {
        os.path.relpath(path, top): os.path.relpath(real, top) for path, real in found.items()
    } == expected
    assert aliases.moved(found) == {}
    (tmp_path / "link").unlink()
    (tmp_path / "tree/own/headers").unlink()
    (tmp_path / "tree/own/headers").symlink_to(tmp_path / "env")
    gone = {"link", "tree/own/headers", "tree/own/headers/linked.h"}
    assert {os.path.relpath(path, top) for path in aliases.moved(found)} == gone


def test_an_object_may_have_found_a_header_by_a_link_to_it_or_to_a_folder_of_it() -> None:
    links = {"/env/linked.h": "/env/one.h", "/link": "/env/real", "/env/way": "/env/include/sub"}
    readers = {
        "/env/one.h": 1, "/link/two.h": 2, "/x/three.h": 4, "/env/include/sub/deep/four.h": 8, "/env/linked.h": 16,
        "/env/include/other.h": 32, "/env/one.h.h": 64,
    }  # fmt: skip
    real = {"/x/three.h": "/env/real/three.h"}
    tree = SimpleNamespace(real=lambda path: real.get(path, path))
    headers = SimpleNamespace(readers=readers)
    assert aliases.readers(cast(Any, tree), cast(Any, headers), links) == 1 | 2 | 4 | 8 | 16
    assert aliases.readers(cast(Any, tree), cast(Any, headers), {}) == 0


def test_a_record_with_a_value_of_another_type_is_damaged(tmp_path: Path) -> None:
    checks = record.Checks(
        languages={"C": ("/cc",), "CXX": ("/c++",)}, generators={"/python": "1"}, include_folders=("/include",),
        aliases={"/a": "/b"}, harmless=("/h",), probes={"/o": (), "/p": ("q",)}, ages={"a.o": 1, "b.o": 2}, follows="f",
    )  # fmt: skip
    package = record.Package(
        source=Source.HOST, name="zlib", role=record.Role.OBJECTS, objects={record.Kind.CORE: 1}, links=2
    )
    made = record.Record(
        files={"/f": "1"},
        folders={"/d": "2"},
        checks=checks,
        packages=(package,),
        objects={record.Kind.CORE: 3},
    )
    record.write(tmp_path / "record", made, date=7 * 10**9)
    found = record.read(tmp_path / "record")
    assert found is not None
    assert (found.record, found.date) == (made, 7 * 10**9)
    assert (tmp_path / "record").stat().st_mode & 0o777 == 0o644, "the driver may be another user"
    for document in replaced(json.loads((tmp_path / "record").read_text()), by=None):
        with pytest.raises(record.DamagedRecord):
            record._decode(document)


@pytest.mark.parametrize("damage", ["missing", "link", "pipe", "folder", "depth", "size", "switch"])
def test_a_record_of_another_kind_is_none(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build writes it: it may be anything."""
    path = tmp_path / "record"
    record.write(path, record.Record(files={"/f": "1"}, folders={}, checks=record.Checks(ages={"a.o": 1})))
    content = path.read_text()
    assert record.read(path) is not None
    path.unlink()
    match damage:
        case "link":
            path.symlink_to(write(tmp_path / "other", content))
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "depth":
            path.write_text("[" * 100_000)
        case "size":
            path.write_text(content)
            monkeypatch.setattr(record, "_LARGEST", len(content) - 1)
        case "switch":
            path.write_text(content.replace('"a.o": 1', '"a.o": true'))
    assert record.read(path) is None


def test_the_content_of_a_file_by_a_recorded_link_is_that_of_the_file() -> None:
    checks = record.Checks(aliases={"/link": "/env/include", "/env/linked.h": "/env/one.h"})
    made = record.Record(
        files={"/env/include/a.h": "1", "/link/b.h": "2", "/env/one.h": "3"}, folders={}, checks=checks
    )
    paths = ("/env/include/a.h", "/link/a.h", "/link/b.h", "/env/linked.h", "/link/gone.h")
    assert [made.content(path) for path in paths] == ["1", "1", "2", "3", UNKNOWN]


def test_a_record_that_cannot_be_written_leaves_the_former_one_and_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    former = write(tmp_path / "record", "former")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        record.write(former, record.Record(files={}, folders={}, checks=record.Checks()))
    assert (list(tmp_path.iterdir()), former.read_text()) == ([former], "former")
