"""A kept tree never keeps an object that saw other files of the environment, whatever their dates are."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inputs_world import OBJECTS, OLD, SOURCES, OnceHashed, World
from small_files import write
from stop_at_write import every_stop_in_place

import tree_dates
from tree_inputs import compare, snapshot
from tree_inputs.__main__ import main as tree_inputs_main
from tree_inputs.compare import CONFIGURED
from tree_inputs.record import COMPLETE, STARTED, Kind, Role, Source, read
from tree_inputs.shadowing import find_probes
from tree_inputs.tree import Tree


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Path]]:
    """A world after its first staging, and a copy of it."""
    patch = pytest.MonkeyPatch()
    for module in (compare, snapshot):
        patch.setattr(module, "Contents", OnceHashed)
    folder = tmp_path_factory.mktemp("inputs")
    world = World(folder / "world")
    world.make()
    world.package("libvalue", "include/pack/value.h", "include/pack/asking.h")
    world.package("libnamed", "lib/libnamed.a")
    world.package("idna", "lib/python3.12/site-packages/idna/core.py")
    world.file("lib/python3.12/site-packages/idna/core.py", "version = 1\n")
    world.stage()
    world.copy_to(folder / "copy")
    yield world, folder / "copy"
    patch.undo()


@pytest.fixture
def world(staged: tuple[World, Path]) -> Iterator[World]:
    """The world after its first staging."""
    made, copy = staged
    yield made
    made.restore_from(copy)


def test_without_a_change_nothing_is_made_again(world: World) -> None:
    assert world.says()["user"] == "11"
    comparison = world.compare()
    assert not comparison.is_changed
    assert sum(comparison.removed.values()) + comparison.links + comparison.others == 0
    assert (world.build / CONFIGURED).exists()
    assert world.rebuild() == set()


def test_a_second_staging_records_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record holds, also on a file system that counts in seconds."""
    first = read(world.build / COMPLETE)
    exact = os.utime
    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", lambda path, *, ns: exact(path, tuple(date // 10**9 for date in ns)))
        world.stage()
    second = read(world.build / COMPLETE)
    assert first is not None
    assert second is not None
    assert second.record.files == first.record.files
    assert second.record.packages == first.record.packages
    assert not (world.build / STARTED).exists()
    assert sum(world.compare().removed.values()) == 0


def test_a_package_that_no_object_reads_changes_nothing(world: World) -> None:
    world.file("lib/python3.12/site-packages/idna/core.py", "version = 2\n")
    world.file("lib/python3.12/site-packages/idna/more.py", "version = 2\n")
    assert not world.compare().is_changed
    assert (world.build / CONFIGURED).exists()


def test_the_record_names_packages_with_their_objects(world: World) -> None:
    found = read(world.build / COMPLETE)
    assert found is not None
    packages = {package.name: package for package in found.record.packages}
    assert packages["libvalue"].role is Role.OBJECTS
    assert packages["libvalue"].source is Source.HOST
    assert packages["libvalue"].objects == {
        Kind.CORE: 2, Kind.CUDA: 0, Kind.BINDINGS: 0, Kind.KERNELS: 0,
    }  # fmt: skip
    assert packages["libnamed"].links == 1
    assert packages["libnamed"].role is Role.OBJECTS
    assert "idna" not in packages
    assert found.record.objects[Kind.CORE] == len(OBJECTS)
    # what the compilers own is read by all objects
    compilers = {package.name for package in packages.values() if package.role is Role.COMPILERS}
    assert {"binutils", "libc6-dev"} & compilers or not Path("/var/lib/dpkg").exists()


def test_a_header_with_an_older_date_is_noticed(world: World) -> None:
    world.header("pack/value.h", "#define VALUE 2\n")
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "21"


def test_a_header_with_the_same_date_and_size_is_noticed(world: World) -> None:
    path = world.prefix / "include/pack/value.h"
    path.write_text("#define VALUE 3\n")
    os.utime(path, (OLD, OLD))
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "31"


def test_a_header_that_vanished_is_noticed(world: World) -> None:
    world.header("optional.h", "")
    world.stage()
    assert world.says()["asker"] == "2"
    (world.prefix / "include/optional.h").unlink()
    assert world.rebuild() == {"asker.cpp"}
    assert world.says()["asker"] == "1"


def test_a_header_that_became_a_folder_or_a_pipe_is_noticed(world: World) -> None:
    path = world.prefix / "include/pack/value.h"
    for make in (os.mkdir, os.mkfifo):
        if path.is_file():
            path.unlink()
        else:
            path.rmdir()
        make(path)
        world.compare()
        assert "user.cpp" not in world.dates()


def test_a_link_that_leads_elsewhere_is_noticed(world: World) -> None:
    world.link("include/linked.h", "two.h")
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "12"


def test_a_folder_that_became_a_link_is_noticed(world: World) -> None:
    (world.prefix / "include/pack").rename(world.prefix / "former")
    world.file("later/value.h", "#define VALUE 4\n")
    world.file("later/asking.h", (world.prefix / "former/asking.h").read_text())
    world.link("include/pack", "../later")
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "41"


def test_a_header_that_shadows_another_is_noticed(world: World) -> None:
    world.file("first/pack/value.h", "#define VALUE 5\n")
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "51"


def test_a_header_that_shadows_a_link_is_noticed(world: World) -> None:
    """GCC lists the file that the link leads to: its path is shorter."""
    world.file("first/linked.h", "#define LINKED 5\n")
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "15"


def test_a_header_next_to_the_including_one_shadows_another(world: World) -> None:
    text = '#include "one.h"\nenum { value = LINKED };\n#define VALUE value\n#undef LINKED\n'
    world.header("pack/value.h", text)
    world.stage()
    assert world.says()["user"] == "11"
    world.header("pack/one.h", "#define LINKED 3\n")
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "31"


def test_a_header_of_the_tree_that_shadows_another_is_noticed(world: World) -> None:
    time.sleep(0.01)
    write(world.tree / "own/pack/value.h", "#define VALUE 6\n")
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "61"


def test_a_header_of_the_tree_that_another_shadows_is_noticed(world: World) -> None:
    """The folder of an include file with quotes comes first, then folders of the environment, by their order."""
    world.file("include/own.h", "#define OWN 2\n")
    # not in front of the tree's: the object is compiled again, with the same result
    assert world.rebuild() <= {"user.cpp"}


def test_another_file_of_a_header_s_name_that_no_compiler_takes_stays_harmless(world: World) -> None:
    world.header("value.h", "not searched: <pack/value.h> is asked for\n")
    world.file("first/elsewhere/value.h", "")
    (world.prefix / "first/linked.h").mkdir()  # compilers pass over folders
    assert world.rebuild() == set()
    world.stage()
    assert world.rebuild() == set()


def test_has_include_that_becomes_true_is_noticed(world: World) -> None:
    world.header("optional.h", "")
    assert world.rebuild() == {"asker.cpp"}
    assert world.says()["asker"] == "2"


def test_has_include_in_a_header_that_becomes_true_is_noticed(world: World) -> None:
    world.header("pack/other.h", "")
    assert world.rebuild() == {"asker.cpp"}
    assert world.says()["asker"] == "11"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#if __has_include(<a/b.h>)", {"a/b.h"}),
        ('#if defined __has_include && __has_include ( "c.h" )', {"c.h"}),
        ("#if __has_include_next(<d.h>)", {"d.h"}),
        ('#define NAME <e.h>\n# define OTHER "f.h"\n#if __has_include(NAME)', {"e.h", "f.h"}),
        ('#define NAME <e.h>\n#if __has_include("g.h")', {"g.h"}),
        ("no question", set()),
    ],
)
def test_all_forms_of_has_include_are_known(text: str, names: set[str], tmp_path: Path) -> None:
    path = write(tmp_path / "asking.h", text)
    assert set(find_probes([str(path)]).get(str(path), ())) == names


def test_a_library_with_an_older_date_is_noticed(world: World) -> None:
    world.archive("lib/libnamed.a", "named", 2)
    assert world.rebuild() == set()
    assert world.says()["named"] == "2"


def test_a_searched_library_with_an_older_date_is_noticed(world: World) -> None:
    world.archive("lib/libsearched.a", "searched", 2)
    assert world.rebuild() == set()
    assert world.says()["searched"] == "2"


def test_a_library_that_shadows_another_is_noticed(world: World) -> None:
    world.archive("lib-first/libsearched.a", "searched", 3)
    world.rebuild()
    assert world.says()["searched"] == "3"


def test_a_library_that_vanished_is_noticed(world: World) -> None:
    world.archive("lib-first/libsearched.a", "searched", 4)
    world.stage()
    assert world.says()["searched"] == "4"
    (world.prefix / "lib-first/libsearched.a").unlink()
    world.rebuild()
    assert world.says()["searched"] == "1"


def test_a_library_behind_a_linker_script_is_noticed(world: World) -> None:
    (world.prefix / "lib/libsearched.a").rename(world.prefix / "lib/libreal.a")
    world.file("lib/libsearched.so", f"INPUT ( {world.prefix}/lib/libreal.a )\n")
    world.stage()
    assert world.says()["searched"] == "1"
    world.archive("lib/libreal.a", "searched", 5)
    world.rebuild()
    assert world.says()["searched"] == "5"


def test_another_compiler_under_the_same_path_is_noticed(world: World) -> None:
    world.program("bin/c++", 'exec /usr/bin/c++ -DBRAND=2 "$@"')
    assert world.rebuild() == OBJECTS - {"plain.c"}
    assert world.says()["brand"] == "2"


def test_another_program_that_a_compiler_starts_is_noticed(world: World) -> None:
    search_parts(world)
    world.program("second/as", "exit 1")
    world.stage()
    assert world.rebuild() == set()
    world.program("second/as", "exit 2")
    assert world.rebuild() == OBJECTS - {"plain.c"}


def test_a_compiler_that_starts_a_program_elsewhere_is_noticed(world: World) -> None:
    search_parts(world)
    world.program("second/as", "")
    world.stage()
    world.program("first/as", "")
    assert world.rebuild() == OBJECTS - {"plain.c"}


def search_parts(world: World) -> None:
    """Make a compiler that says that it starts programs in two folders of the environment."""
    folders = f"programs: ={world.prefix}/first:{world.prefix}/second"
    script = f'case $1 in -print-search-dirs) echo "{folders}" ;; *) exec /usr/bin/c++ "$@" ;; esac'
    world.program("bin/c++", script)


def test_a_cmake_file_with_an_older_date_is_noticed(world: World) -> None:
    world.file("lib/cmake/Foo/FooConfig.cmake", "set(Foo_VALUE 1)\n")
    world.stage()
    assert world.says()["foo"] == "1"
    world.file("lib/cmake/Foo/FooConfig.cmake", "set(Foo_VALUE 2)\n")
    world.rebuild()
    assert world.says()["foo"] == "2"


def test_a_package_that_cmake_could_find_now_is_noticed(world: World) -> None:
    world.file("lib/cmake/Foo/FooConfig.cmake", "set(Foo_VALUE 3)\n")
    world.rebuild()
    assert world.says()["foo"] == "3"


def test_a_package_that_cmake_no_longer_finds_is_noticed(world: World) -> None:
    world.file("share/cmake/Foo/FooConfig.cmake", "set(Foo_VALUE 4)\n")
    world.stage()
    (world.prefix / "share/cmake/Foo/FooConfig.cmake").unlink()
    world.rebuild()
    assert world.says()["foo"] == "0"


def test_another_generator_under_the_same_path_is_noticed(world: World) -> None:
    world.program("bin/generate", 'echo "#define GENERATED 2" >"$1"')
    assert world.rebuild() == {"maker.cpp"}
    assert world.says()["maker"] == "2"


def test_a_generator_that_writes_the_same_recompiles_nothing(world: World) -> None:
    world.program("bin/generate", 'test -e "$1" || echo "#define GENERATED 1" >"$1"; touch ../ran')
    assert world.rebuild() == set()
    assert (world.tree / "ran").exists()


def test_an_object_without_a_list_of_headers_is_removed_after_any_change(world: World) -> None:
    (world.build / ".ninja_deps").unlink()
    world.header("unused.h", "")
    comparison = world.compare()
    assert comparison.removed[Kind.CORE] == len(OBJECTS)


class TestKilled:
    """A compile that was killed has no record of its end."""

    def test_in_the_same_environment_its_objects_are_kept(self, world: World) -> None:
        write(world.tree / "user.cpp", SOURCES["user.cpp"] + "// changed\n")
        world.compare()
        world.begin()
        world.ninja("user")
        made = world.dates()
        assert not world.compare().is_changed
        assert world.dates() == made
        assert world.rebuild() == set()

    def test_the_first_compile_keeps_its_objects(self, world: World) -> None:
        self.first(world)
        assert not world.compare().is_changed
        assert world.rebuild() == OBJECTS - {"user.cpp"}

    def test_in_another_environment_only_its_stale_objects_are_removed(self, world: World) -> None:
        self.first(world)
        world.ninja("asker", "plain")
        world.header("pack/value.h", "#define VALUE 7\n")
        assert world.rebuild() == OBJECTS - {"asker.cpp", "plain.c"}
        assert world.says()["user"] == "71"

    def test_after_two_kills_in_two_environments_no_stale_object_is_kept(self, world: World) -> None:
        self.first(world)
        world.header("pack/value.h", "#define VALUE 8\n")
        world.compare()
        world.begin()
        world.ninja("user")
        world.header("pack/value.h", "#define VALUE 1\n")
        world.rebuild()
        assert world.says()["user"] == "11"

    def test_a_header_that_appears_after_the_kill_is_noticed(self, world: World) -> None:
        self.first(world)
        world.ninja("asker")
        world.file("first/pack/value.h", "#define VALUE 9\n")
        world.header("optional.h", "")
        world.rebuild()
        assert (world.says()["user"], world.says()["asker"]) == ("91", "2")

    def test_headers_that_a_launcher_names_by_a_link_are_known(self, world: World) -> None:
        """compile_cached.sh does; the second installation of a package changes dates that only the kernel sets."""
        link = world.folder / "env"
        link.symlink_to("prefix")
        environment = {**world.environment, "BUILD_ENV_LINK": str(link)}
        world.program("bin/c++", f'exec /usr/bin/c++ $(echo "$@" | sed "s|{world.prefix}/|{link}/|g")')
        world.compare()
        world.configure()
        snapshot.begin(world.build, environment)
        world.ninja()
        assert any(str(link) in path for path in Tree.load(world.build).read_headers().readers)
        os.utime(world.prefix / "include/pack/value.h", (OLD, OLD))
        made = world.dates()
        assert not compare.compare(world.build, environment).is_changed
        assert world.dates() == made
        recorded = snapshot.record(world.build, environment)
        assert recorded is not None
        assert recorded.unknown == ()

    @pytest.mark.parametrize("place", ["header", "folder"])
    def test_objects_with_a_header_behind_a_link_are_kept(self, world: World, place: str) -> None:
        """GCC lists it by its own path if that is shorter, as Debian's headers of Linux."""
        real = write(world.folder / "k" / "v.h", "#define VALUE 1\n")
        os.utime(real, (OLD, OLD))
        if place == "header":
            world.link("include/pack/value.h", str(real))
        else:
            world.link("include/kernel", str(real.parent))
            world.header("pack/value.h", "#include <kernel/v.h>\n")
        self.first(world)
        made = world.dates()
        assert str(real) in world.run("ninja", "-C", str(world.build), "-t", "deps")
        assert not world.compare().is_changed
        assert world.dates() == made
        write(real, "#define VALUE 2\n")
        os.utime(real, (OLD, OLD))
        assert "user.cpp" in world.rebuild()
        assert world.says()["user"] == "21"

    def test_without_a_record_of_its_start_all_is_made_again(self, world: World) -> None:
        self.first(world)
        (world.build / STARTED).unlink()
        world.header("pack/value.h", "#define VALUE 2\n")
        assert world.rebuild() == OBJECTS
        assert world.says()["user"] == "21"

    def test_while_its_record_is_written_it_keeps_its_objects(self, world: World) -> None:
        """The former record describes another environment."""
        former = (world.build / COMPLETE).read_bytes()
        world.header("pack/value.h", "#define VALUE 2\n")
        assert world.rebuild() == {"user.cpp"}

        def prepare() -> None:
            write(world.build / COMPLETE, former)
            world.begin()
            world.ninja()

        for _ in every_stop_in_place(world.build, prepare, world.record):
            made = world.dates()
            world.compare()
            assert world.dates() == made

    def test_while_cmake_ran_it_keeps_its_objects(self, world: World) -> None:
        (world.build / CONFIGURED).unlink()
        (world.build / "CMakeCache.txt").unlink()
        assert not world.compare().is_changed
        assert world.rebuild() == set()

    def test_a_start_that_cannot_be_recorded_leaves_no_former_one(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.first(world)

        def fail(*_: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(snapshot, "write", fail)
        with pytest.raises(OSError, match="disk full"):
            world.begin()
        assert not (world.build / STARTED).exists()

    def first(self, world: World) -> None:
        """Kill the first compile of a tree after one object."""
        world.run("ninja", "-C", str(world.build), "-t", "clean")
        (world.build / COMPLETE).unlink()
        (world.build / ".ninja_log").unlink()
        (world.build / ".ninja_deps").unlink()
        world.begin()
        world.ninja("user")


def test_a_file_that_changes_during_the_compile_is_not_trusted(world: World) -> None:
    world.begin()
    world.header("pack/value.h", "#define VALUE 2\n")
    recorded = world.record()
    assert recorded.unknown == (str(world.prefix / "include/pack/value.h"),)
    assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "21"


def test_an_object_made_since_the_record_in_another_environment_is_removed(world: World) -> None:
    world.header("pack/value.h", "#define VALUE 2\n")
    (world.build / "CMakeFiles/user.dir/user.cpp.o").unlink()
    world.ninja()  # as the build script of another package, which records nothing
    world.header("pack/value.h", "#define VALUE 1\n")
    assert "user.cpp" in world.rebuild()
    assert world.says()["user"] == "11"


def test_a_tree_whose_dates_were_set_back_is_kept(world: World) -> None:
    later = time.time() + 5000
    for path in [world.tree, *world.tree.rglob("*")]:
        if not path.is_symlink():
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 5000 * 10**9))
    os.utime(world.tree / "CMakeLists.txt", (later, later))
    assert tree_dates.mend(world.tree).seconds > 0
    comparison = world.compare()
    assert sum(comparison.removed.values()) == 0


def damage_json(path: Path) -> None:
    path.write_text('{"version": 1, "files": {')


def damage_types(path: Path) -> None:
    document = json.loads(path.read_text())
    document["files"] = ["/etc/passwd"]
    path.write_text(json.dumps(document))


def damage_version(path: Path) -> None:
    document = json.loads(path.read_text())
    document["version"] = 2
    path.write_text(json.dumps(document))


def damage_numbers(path: Path) -> None:
    document = json.loads(path.read_text())
    document["checks"]["ages"] = {"say": "1" * 5000}
    path.write_text(json.dumps(document))


def damage_depth(path: Path) -> None:
    path.write_text("[" * 100_000)


def damage_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


def damage_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.json"))
    path.symlink_to("elsewhere.json")


def damage_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def damage_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = (
    damage_json, damage_types, damage_version, damage_numbers, damage_depth, damage_bytes, damage_link, damage_pipe,
    damage_folder,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_a_missing_one(damage: object, world: World) -> None:
    assert callable(damage)
    damage(world.build / COMPLETE)
    assert read(world.build / COMPLETE) is None
    comparison = world.compare()
    assert not comparison.is_proven
    assert world.dates() == {}
    assert not (world.build / CONFIGURED).exists()


def test_a_damaged_record_is_replaced(world: World) -> None:
    damage_link(world.build / COMPLETE)
    target = (world.build / "elsewhere.json").read_text()
    world.stage()
    assert read(world.build / COMPLETE) is not None
    assert (world.build / "elsewhere.json").read_text() == target


def test_a_tree_that_was_never_compiled_has_nothing_to_remove(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.make()
    world.build.mkdir()
    assert world.compare().is_proven


def test_generated_files_of_a_former_configuration_are_removed(world: World) -> None:
    text = SOURCES["CMakeLists.txt"].replace("generated.h", "renamed.h")
    write(world.tree / "CMakeLists.txt", text)
    write(world.tree / "maker.cpp", SOURCES["maker.cpp"].replace("generated.h", "renamed.h"))
    world.compare()
    (world.build / CONFIGURED).unlink()
    world.configure()
    assert (world.build / "generated.h").exists()
    world.begin()
    assert not (world.build / "generated.h").exists()
    world.ninja()
    assert world.says()["maker"] == "1"


def test_a_source_that_was_generated_before_is_kept(world: World) -> None:
    """A release may contain a file that a former one generated."""
    text = SOURCES["CMakeLists.txt"].replace("OUTPUT generated.h", 'OUTPUT "${CMAKE_SOURCE_DIR}/generated.h"')
    write(world.tree / "CMakeLists.txt", text.replace("maker.cpp generated.h", "maker.cpp"))
    log = world.build / ".ninja_log"
    log.write_bytes(log.read_bytes() + b"1\t2\t3\t../now-a-source.h\tabc\n")
    write(world.tree / "now-a-source.h", "")
    write(world.tree / ".megabuild-sync.json", json.dumps(["now-a-source.h"]))
    world.begin()
    assert (world.tree / "now-a-source.h").exists()
    write(world.tree / ".megabuild-sync.json", json.dumps([]))
    world.begin()
    assert not (world.tree / "now-a-source.h").exists()


class Closed:
    """Makes files and folders unreadable to this process; root could read them otherwise."""

    def __init__(self, patch: pytest.MonkeyPatch, *paths: Path) -> None:
        closed = frozenset(map(str, paths))
        for name in ("open", "scandir", "listdir"):
            patch.setattr(os, name, self._refusing(getattr(os, name), closed))

    @staticmethod
    def _refusing(function: Callable[..., Any], closed: frozenset[str]) -> Callable[..., Any]:
        def refuse(path: Any = ".", *more: Any, **options: Any) -> Any:
            if str(path) in closed:
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *more, **options)

        return refuse


def test_a_header_that_became_unreadable_is_a_changed_one(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = world.prefix / "include/pack/value.h"
    monkeypatch.setenv("PREFIX", str(world.prefix))
    with monkeypatch.context() as patch:
        Closed(patch, header)
        assert tree_inputs_main(["compare", str(world.build), str(world.tree / "torch")]) == 0
    printed = capsys.readouterr().out
    assert f"-- changed: libvalue: {header}\n" in printed
    assert "::megabuild:: inputs files=1 objects=1 " in printed
    assert OBJECTS - world.dates().keys() == {"user.cpp"}


def test_a_folder_of_headers_that_became_unreadable_recompiles_only_what_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its headers can still be read by their names; CMake may find others, so the tree is configured again."""
    with monkeypatch.context() as patch:
        Closed(patch, world.prefix / "include/pack")
        comparison = world.compare()
    assert comparison.folders == (str(world.prefix / "include"),)
    assert sum(comparison.removed.values()) == 0
    assert not (world.build / CONFIGURED).exists()
    with monkeypatch.context() as patch:
        Closed(patch, world.prefix / "include/pack")
        world.stage()
        assert not world.compare().is_changed
        world.header("pack/value.h", "#define VALUE 2\n")
        assert world.rebuild() == {"user.cpp"}
    assert world.says()["user"] == "21"


def test_a_header_that_cannot_be_read_for_its_record_is_not_trusted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = world.prefix / "include/pack/value.h"
    for closed in ((world.begin,), (world.record,), (world.begin, world.record)):
        for step in (world.begin, world.record):
            with monkeypatch.context() as patch:
                if step in closed:
                    Closed(patch, header)
                step()
        assert world.rebuild() == {"user.cpp"}, closed


def test_a_package_whose_record_is_unreadable_has_no_files(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFIX", str(world.prefix))
    header = world.prefix / "include/pack/value.h"
    world.header("pack/value.h", "#define VALUE 2\n")
    with monkeypatch.context() as patch:
        Closed(patch, world.prefix / "conda-meta")
        assert tree_inputs_main(["compare", str(world.build), str(world.tree / "torch")]) == 0
    assert f"-- changed: no package: {header}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "step"), [("build/.ninja_log", World.compare), (".megabuild-sync.json", World.begin)]
)
def test_an_unreadable_record_of_the_tree_itself_ends_the_build(
    place: str, step: Callable[[World], object], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty log would compile everything again, and an empty list of sources would let them be deleted."""
    sources = json.dumps(sorted(SOURCES))
    write(world.tree / ".megabuild-sync.json", sources)
    world.header("pack/value.h", "#define VALUE 2\n")
    world.program("bin/generate", 'echo "#define GENERATED 2" >"$1"')
    before = (world.tree / place).read_bytes()
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == world.tree / place:
            raise OSError(5, "Input/output error", str(path))
        return read_bytes(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            step(world)
    assert (world.tree / place).read_bytes() == before
    assert world.rebuild() == {"user.cpp", "maker.cpp"}
