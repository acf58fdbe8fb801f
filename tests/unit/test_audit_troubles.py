"""A part of the audit that cannot be read is reported, whatever the error; the other parts are read."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import git_world
import msgspec
import pytest
from audit_site import request, services
from small_files import program, write

from groundwork import files
from groundwork.errors import AuditError, ConfigError, Interrupted, MegabuildError, ProviderError, UsageError
from groundwork.files import FileLock
from groundwork.network.client import NetworkError
from pin_audit import audit_report, bump_hashes, command, git_command, snapshots, targets
from pin_audit.audit_options import AuditOptions
from pin_audit.audit_report import BEGIN, END
from pin_audit.bump_hashes import Digest, find_sha256
from pin_audit.facts import RecipeCommit, SourceOutcome, Submodule, Where
from pin_audit.git_command import run_git
from pin_audit.recipe_lines import Line
from pin_audit.repositories import Repositories, Repository, TreeEntry
from pin_audit.request import AuditRequest
from pin_audit.run_sources import gather
from pin_audit.services import Services
from pin_audit.snapshots import Snapshot
from pin_audit.sources import pinning, recipe_pins, submodules
from pin_audit.sources.wheel_metadata import IndexPage

NAMES = ("a", "b", "c")
URLS = [f"https://github.com/o/{name}/releases/download/v1/{name}.tar.gz" for name in NAMES]


def repository_of(folder: Path, cache: Path) -> Repository:
    return Repository(f"file://{folder}", Services(cache), "")


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, tagged v1."""
    git_world.without_settings(monkeypatch)
    repo = git_world.Repo(tmp_path / "upstream")
    repo.tag("v1", repo.commit())
    repo.make()
    return repo.path


@pytest.mark.parametrize("failing", [(), (0,), (1,), (2,), (0, 2)], ids=str)
@pytest.mark.parametrize("fault", ["no repository", "no commit", "an update that runs a command"])
def test_a_submodule_that_cannot_be_looked_up_is_told_and_the_others_are_described(
    fault: str, failing: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_world.without_settings(monkeypatch)
    links = {}
    for name in NAMES:
        repo = git_world.Repo(tmp_path / f"{name}.git")
        repo.tag(f"{name}-1", repo.commit())
        links[name] = repo.make()[1]
    broken = [NAMES[number] for number in failing]
    entries = git_world.modules({name: f"../{name}.git" for name in NAMES}).decode()
    for name in broken:
        if fault == "no repository":
            shutil.rmtree(tmp_path / f"{name}.git")
        elif fault == "no commit":
            links[name] = "1234567abc" + "0" * 30
        else:
            entries = entries.replace(f"path = {name}\n", f"path = {name}\n\tupdate = !touch x\n")
    top = git_world.Repo(tmp_path / "top.git")
    top.tag("v1", top.commit(files={".gitmodules": entries.encode()}, gitlinks=links))
    top.make()
    given = Services(tmp_path / "cache")
    repositories = Repositories(given)
    asked = SimpleNamespace(
        repository=lambda: repositories.open(f"file://{top.path}", only="v1"), repositories=repositories
    )
    outcome = submodules.read(cast(Any, asked))
    found = {fact.name: fact for fact in outcome.facts}
    assert {name: fact.value for name, fact in found.items()} == {
        name: "" if name in broken else f"{name}-1" for name in NAMES
    }
    assert [name for name, fact in found.items() if fact.trouble] == broken


@pytest.mark.parametrize("content", [b"[submodule", b"\xff\xfe[x]", b"x" * (2 << 20)], ids=len)
def test_submodules_that_cannot_be_parsed_are_not_none(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_world.without_settings(monkeypatch)
    repo = git_world.Repo(tmp_path / "top.git")
    repo.tag("v1", repo.commit(files={".gitmodules": content}))
    repo.make()
    repositories = Repositories(Services(tmp_path / "cache"))
    asked = SimpleNamespace(
        repository=lambda: repositories.open(f"file://{repo.path}", only="v1"), repositories=repositories
    )
    outcome = submodules.read(cast(Any, asked))
    assert (outcome.facts, ".gitmodules" in outcome.trouble) == ((), True)


def test_a_clone_that_cannot_be_updated_is_used_with_a_warning(upstream: Path, tmp_path: Path) -> None:
    repository_of(upstream, tmp_path / "cache").update()
    shutil.rmtree(upstream)
    again = repository_of(upstream, tmp_path / "cache")
    again.update()
    assert again.describe("v1") == "v1"
    (warning,) = again._services.warnings
    assert "; using the clone of " in warning


def test_an_answer_of_the_cache_in_place_of_a_server_s_is_a_warning(tmp_path: Path) -> None:
    page = IndexPage(url="https://x.example/simple/")
    Services(tmp_path).cached(page, 0.0, lambda: b"old")
    again = Services(tmp_path)

    def fail() -> bytes:
        raise NetworkError("x.example: no answer")

    assert again.cached(page, -1.0, fail).data == b"old"
    (warning,) = again.warnings
    assert "no answer" in warning


@pytest.mark.parametrize("fault", ["no repository", "another user's cache", "another process"])
def test_a_clone_that_cannot_be_made_is_an_error_each_time(
    fault: str, upstream: Path, tmp_path: Path
) -> None:
    repository = repository_of(upstream, tmp_path / "cache")
    reason = r"^.*: cannot be written: "
    if fault == "no repository":
        shutil.rmtree(upstream)
        reason = "does not appear to be a git repository|does not exist"
    elif fault == "another user's cache":
        write(tmp_path / "cache/git")
    held = FileLock(f"{repository._folder}.lock")
    if fault == "another process":
        repository._folder.parent.mkdir(parents=True)
        held.acquire()
        repository._services.remaining = lambda: 0.0
    for _ in range(2):
        with pytest.raises(AuditError, match=reason):
            repository.update()
    held.release()


def test_git_that_takes_too_long_or_is_missing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("git")
    program(tmp_path / "bin/git", '[ "$1" != version ] || { echo git version 2.47.0; exit 0; }\nsleep 30')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    began = time.monotonic()
    with pytest.raises(AuditError, match="git took longer than 0 s"):
        run_git(tmp_path, "status", seconds=0.2)
    assert time.monotonic() - began < 20
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AuditError, match="git is not installed"):
        run_git(tmp_path, "status")


@pytest.mark.parametrize("failing", [(), (0,), (1,), (2,), (0, 2)], ids=str)
@pytest.mark.parametrize("error", [AuditError, ConfigError])
def test_a_recipe_whose_sources_cannot_be_read_is_told_and_the_others_are_read(
    error: type[MegabuildError], failing: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [NAMES[number] for number in failing]

    def commits(name: str, *_: object) -> list[Any]:
        if name in broken:
            raise error(f"{name} is broken")
        return [RecipeCommit(name=name, value="1", recipe=name)]

    known = [SimpleNamespace(name=name, recipe=write(tmp_path / name)) for name in NAMES]
    monkeypatch.setattr(recipe_pins, "packages", lambda: known)
    monkeypatch.setattr(recipe_pins, "_commits_of", commits)
    asked = SimpleNamespace(foreign=False, root=tmp_path, target=SimpleNamespace(recipe=None))
    outcome = recipe_pins.read_commits(cast(Any, asked))
    assert [fact.name for fact in outcome.facts] == [name for name in NAMES if name not in broken]
    assert outcome.trouble == "; ".join(f"{name} is broken" for name in broken)


@pytest.mark.parametrize(
    "error",
    [ProviderError("no answer"), msgspec.DecodeError("x"), KeyError("assets"), TypeError("x")],
    ids=repr,
)
@pytest.mark.parametrize("failing", [(0,), (0, 1), (0, 1, 2)], ids=str)
def test_after_an_address_without_an_answer_the_next_one_is_asked(
    error: Exception, failing: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def published(url: str, _: AuditRequest) -> Digest:
        if URLS.index(url) in failing:
            raise error
        return Digest(sha256="1" * 64, source=url)

    monkeypatch.setattr(bump_hashes, "_published_sha256", published)
    found = find_sha256(URLS, request(services(tmp_path), version="1"))
    if len(failing) < len(URLS):
        assert (found.sha256, found.source) == ("1" * 64, URLS[len(failing)])
    else:
        expected = "no answer" if isinstance(error, ProviderError) else "does not list the release's files"
        assert (found.sha256, expected in found.source) == ("", True)


def test_another_error_of_an_address_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def published(*_: object) -> Digest:
        raise ZeroDivisionError

    monkeypatch.setattr(bump_hashes, "_published_sha256", published)
    with pytest.raises(ZeroDivisionError):
        find_sha256(URLS, request(services(tmp_path), version="1"))


def test_an_audit_that_is_interrupted_ends_git_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    monkeypatch.setattr(git_command, "stop", lambda: stopped.append("git"))
    ended = threading.Event()

    def hangs(_: AuditRequest) -> SourceOutcome:
        ended.wait()
        return SourceOutcome()

    with pytest.raises(Interrupted):
        gather([request(services(tmp_path))], {"hangs": hangs})
    ended.set()
    assert stopped == ["git"]


def read_pins(path: Path) -> None:
    pinning._from_local(path)


def insert_table(path: Path) -> None:
    audit_report.insert(path, "x")


def test_a_source_that_was_not_read_is_not_dated_anew_in_a_snapshot(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = SourceOutcome(source="submodules", trouble="no network")
    saved: list[Snapshot] = []
    monkeypatch.setattr(command, "gather", lambda requests, _: [[silent] for _ in requests])
    monkeypatch.setattr(snapshots, "save", saved.append)
    report = command.make(AuditOptions(snapshot=True, offline=True), repository)
    assert not saved
    assert "not read, older facts stay: submodules" in report.warnings


def test_a_snapshot_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(AuditError, match=r"a-1\.json: cannot be written: No space left on device"):
        snapshots.save(Snapshot(package="a", version="1", made="", sources=()), tmp_path)


@pytest.mark.parametrize(("reader", "error"), [(read_pins, AuditError), (insert_table, UsageError)])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"nothing of it"], ids=["bytes", "text"])
def test_a_file_that_cannot_be_used_is_an_error(
    reader: Callable[[Path], None], error: type[MegabuildError], content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content + f"\n{BEGIN}\n{END}\n".encode() * content.startswith(b"\xff"))
    before = path.read_bytes()
    if reader is read_pins and not content.startswith(b"\xff"):
        path = tmp_path / "empty"
        path.mkdir()
        before = b""
    with pytest.raises(error):
        reader(path)
    assert not path.is_file() or path.read_bytes() == before


def test_of_a_folder_of_pins_each_file_must_be_readable(tmp_path: Path) -> None:
    write(tmp_path / "conda_build_config.yaml", "zlib: [1]\n")
    write(tmp_path / "migrations" / "a.yaml", "__migrator: {}\n")
    (tmp_path / "migrations" / "b.yaml").mkdir()
    with pytest.raises(AuditError, match=r"cannot be read: .*migrations/b\.yaml"):
        read_pins(tmp_path)


@pytest.mark.parametrize("package", targets.packages(), ids=lambda package: str(package.name))
@pytest.mark.parametrize(
    ("repository", "tag", "known"), [("", "", True), ("/x", "", False), ("", "-x", False)], ids=str
)
def test_only_releases_of_the_known_repositories_are_known(
    package: targets.AuditedPackage, repository: str, tag: str, known: bool
) -> None:
    asked = SimpleNamespace(
        repository=package.repository + repository, tag=package.tag.format(version="9.1") + tag, version="9.1"
    )
    assert targets.is_known(cast(Any, asked)) is known


def test_a_repository_without_configs_has_nothing_to_audit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"^{tmp_path}: no configs") as told:
        targets.target(targets.packages()[0], [], tmp_path)
    assert told.value.remedy == "run: scripts/megabuild configs --write"


@pytest.mark.parametrize(
    ("name", "asked", "version", "builds"),
    [
        ("pytorch", None, "2.13.0", "bc"),
        ("pytorch", "2.6.0", "2.6.0", "a"),
        ("pytorch", "2.14.0", "2.14.0", "bc"),  # of no config
        ("pytorch_scatter", None, "2.1.2", "bc"),
        ("pytorch_scatter", "2.2.0", "2.2.0", "bc"),
    ],
)
def test_the_configs_of_most_and_of_the_version_that_is_asked_for_are_audited(
    name: str, asked: str | None, version: str, builds: str, tmp_path: Path
) -> None:
    package = targets.find(name)
    configs = []
    for config, torch in (("a", "2.6.0"), ("b", "2.13.0"), ("c", "2.13.0")):  # Debian's is first
        variant = {package.key: ("2.1.2",)} | {"torch_version": (torch,)}
        configs.append(SimpleNamespace(
            name=config, variant=variant, torch_version=torch, platform="linux-64", accelerator="cpu",
            cuda_version=None, blas="mkl", provider="conda-forge",
        ))  # fmt: skip
    found = targets.target(package, cast(Any, configs), tmp_path, version=asked)
    assert (found.version, "".join(build.name for build in found.builds)) == (version, builds)
    assert found.tag == package.tag.format(version=version)


@pytest.mark.parametrize("failing", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_config_whose_recipe_cannot_be_rendered_is_told_and_the_others_are_read(
    failing: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = ("staging_build", "build", "staging_host", "host", "run", "constraints")
    configs = [SimpleNamespace(name=name, build_platform="", platform="linux-64") for name in "abc"]
    broken = [configs[number].name for number in failing]

    def render_recipe(config: Any, *_: object, **__: object) -> Any:
        if config.name in broken:
            raise ConfigError(f"{config.name} is wrong")
        requirements = {side: ("own", f"{side} >=1") for side in sides}
        return [SimpleNamespace(name="own", **requirements)]

    monkeypatch.setattr(recipe_pins, "render", render_recipe)
    monkeypatch.setattr(recipe_pins, "requirement_lines", lambda *_: [])
    monkeypatch.setattr(recipe_pins, "place", lambda *_: None)
    services = SimpleNamespace(report=print)
    request = SimpleNamespace(
        configs=configs, root=tmp_path, services=services, target=SimpleNamespace(package="own")
    )
    troubles: list[str] = []
    needs = list(recipe_pins._of_recipe(tmp_path, cast(Any, request), troubles))
    assert troubles == [f"{name} is wrong" for name in broken]
    assert {(need.config.name, need.name) for need in needs} == {
        (name, side) for name in "abc" if name not in broken for side in sides
    }


@pytest.mark.parametrize(("zlib", "foreign", "rendered"), [
    (("1", "1"), True, True), (("1", "2"), True, False), (("2", "1"), True, False), (("1", "1"), False, False),
])  # fmt: skip
def test_a_requirement_of_several_configs_and_sections_is_one_fact(
    zlib: Sequence[str], foreign: bool, rendered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feedstock's rendered configs set its version if those of all configs do."""
    nothing: dict[str, Sequence[str]] = dict.fromkeys(
        ("staging_build", "build", "staging_host", "constraints"), ()
    )
    packages = [
        SimpleNamespace(name="own", host=("zlib 1.*", "own"), run=("zlib 1.*", "__unix"), **nothing),
    ]
    monkeypatch.setattr(recipe_pins, "render", lambda *_, **__: packages)
    configs = [
        SimpleNamespace(name=name, build_platform="", platform="linux-64", variant={"zlib": (version,)})
        for name, version in zip("ab", zlib, strict=True)
    ]
    recipe = write(tmp_path / "recipe.yaml", "requirements:\n  host:\n    - zlib\n")
    request = SimpleNamespace(
        configs=configs, root=tmp_path, services=SimpleNamespace(report=print), foreign=foreign,
        target=SimpleNamespace(package="own", recipe=recipe),
    )  # fmt: skip
    (fact,) = cast(Any, recipe_pins.read(cast(Any, request)).facts)
    assert (fact.name, fact.value, fact.holds.configs, fact.rendered) == ("zlib", "1.*", ("a", "b"), rendered)
    assert fact.sections == ("host", "run")


@pytest.mark.parametrize(
    ("sources", "configs"),
    [
        ({"a": ["x"], "b": ["x"], "skipping": []}, {"x": ()}),
        ({"a": ["x"], "b": [], "skipping": ["x"]}, {"x": ("a",)}),
        ({"a": ["x"], "b": ["y"], "skipping": []}, {"x": ("a",), "y": ("b",)}),
    ],
)
def test_a_commit_holds_for_the_configs_that_build_its_recipe(
    sources: dict[str, list[str]],
    configs: dict[str, tuple[str, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def render_recipe(config: Any, *_: object, **__: object) -> list[SimpleNamespace]:
        if config.name == "skipping":
            return []
        git = [(f"https://me:s3cret@h/{name}.git", "refs/tags/v1") for name in sources[config.name]]
        return [SimpleNamespace(git=git)]

    monkeypatch.setattr(recipe_pins, "render", render_recipe)
    monkeypatch.setattr(recipe_pins, "git_lines", lambda *_: ["line"])
    monkeypatch.setattr(recipe_pins, "place", lambda *_: Where())
    built = [
        SimpleNamespace(name=name, build_platform="linux-64", variant={"torch_version": (f"2.{name}",)})
        for name in sources
    ]
    asked = SimpleNamespace(
        configs=built, root=tmp_path, target=SimpleNamespace(package="pytorch", version="3.0")
    )
    found = recipe_pins._commits_of("pytorch", tmp_path, cast(Any, asked))
    assert {fact.name: fact.holds.configs for fact in found} == configs
    first = {name: (of or ("a",))[0] for name, of in configs.items()}
    assert {fact.name: fact.version for fact in found} == {name: f"2.{of}" for name, of in first.items()}
    assert {fact.address for fact in found} == {f"https://h/{name}.git" for name in configs}


def test_a_list_of_architectures_is_shown_at_the_first_line_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [("other", "9.0"), ("torch_cuda_arch_list", "8.0"), ("torch_cuda_arch_list", "9.0")] * 2
    matrix = [Line("m", number, "", key, value) for number, (key, value) in enumerate(lines, 1)]
    monkeypatch.setattr(recipe_pins, "read_lines", lambda *_: matrix)
    configs = [
        SimpleNamespace(name=f"{cuda}-{platform}", platform=platform, cuda_version=cuda,
                        variant={"torch_cuda_arch_list": (archs,)})
        for platform, cuda, archs in (
            ("linux-64", "12.9", "9.0"), ("linux-aarch64", "12.9", "8.0"), ("linux-64", "13.0", "9.0"),
            ("osx-64", None, ""),
        )
    ]  # fmt: skip
    asked = SimpleNamespace(
        foreign=False, root=tmp_path, configs=configs, target=SimpleNamespace(package="pytorch")
    )
    facts = cast(Any, recipe_pins.read_archs(cast(Any, asked)).facts)
    assert [(fact.name, fact.where.line, fact.holds.platforms, fact.holds.configs) for fact in facts] == [
        ("CUDA 12.9", 2, ("linux-aarch64",), ("12.9-linux-aarch64",)),
        ("CUDA 12.9", 3, ("linux-64",), ("12.9-linux-64",)),
        ("CUDA 13.0", 3, (), ("13.0-linux-64",)),
    ]


@pytest.mark.parametrize("chain", [(), ("parent",)], ids=["top", "nested"])
def test_only_the_top_repository_s_submodules_without_an_entry_are_known(chain: tuple[str, ...]) -> None:
    tree = {
        ".gitmodules": TreeEntry(mode="100644", hash="m"),
        "declared": TreeEntry(mode="160000", hash="d"),
        "undeclared": TreeEntry(mode="160000", hash="u"),
        "file": TreeEntry(mode="100644", hash="f"),
    }
    modules = b'[submodule "declared"]\n\tpath = declared\n\turl = ../d\n'

    def listing(_: str, *names: str) -> dict[str, TreeEntry]:
        return {path: entry for path, entry in tree.items() if not names or path in names}

    repository = SimpleNamespace(listing=listing, contents=lambda hashes: {"m": modules})
    parent = submodules._parent(chain, cast(Any, repository), "c")
    assert parent.gitlinks == ({"declared": "d"} if chain else {"declared": "d", "undeclared": "u"})
    assert (parent.declared["declared"].url, parent.trouble) == ("../d", "")


@pytest.mark.parametrize(
    ("most", "deepest", "is_told"),
    [
        (500, 8, False),
        (1, 8, True),
        (3, 8, True),
        (4, 8, False),
        (5, 8, False),
        (500, 2, True),
        (500, 3, False),
    ],
)
def test_submodules_that_were_left_out_are_told(
    most: int, deepest: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one repository with two submodules, of which the second has one, which has another one."""
    below = {(): ("a", "b"), ("b",): ("c",), ("b", "c"): ("d",)}
    repository: Any = SimpleNamespace(commit="0")

    def parent(chain: tuple[str, ...]) -> submodules.ParentRepository:
        links = dict.fromkeys(below.get(chain, ()), "1")
        return submodules.ParentRepository(chain=chain, repository=repository, commit="0", gitlinks=links)

    def look_up(link: submodules.Link, **_: object) -> submodules.FoundSubmodule:
        fact = Submodule(name="/".join(link.chain), value="v1")
        return submodules.FoundSubmodule(chain=link.chain, fact=fact, repository=parent(link.chain))

    monkeypatch.setattr(submodules, "_parent", lambda chain, *_: parent(chain))
    monkeypatch.setattr(submodules, "_look_up", look_up)
    monkeypatch.setattr(submodules, "_MOST", most)
    monkeypatch.setattr(submodules, "_DEEPEST", deepest)
    asked: Any = SimpleNamespace(repository=lambda: repository, repositories=None)
    outcome = submodules.read(asked)
    names = ["a", "b", "b/c", "b/c/d"]
    assert [fact.name for fact in outcome.facts] == names[: min(most, deepest + 1)]
    told = f"only the first {most} submodules and {deepest} levels were read"
    assert outcome.trouble == (told if is_told else "")


@pytest.mark.parametrize("url", ["../d.git", "https://me:s3cret@h/o/d.git"], ids=["relative", "absolute"])
def test_a_submodule_is_asked_with_the_login_of_its_address_and_shown_without(url: str) -> None:
    opened: list[tuple[str, str]] = []

    def open_repository(address: str, *, parent: str) -> Any:
        opened.append((address, parent))
        raise AuditError("no answer")

    given = "https://me:s3cret@h/o/top.git"
    top: Any = SimpleNamespace(given=given, url=lambda *_: "https://h/o/top", fetched="")
    parent = submodules.ParentRepository(
        chain=(),
        repository=top,
        commit="0",
        gitlinks={"d": "1"},
        declared={"d": submodules.DeclaredModule(url=url)},
    )
    repositories: Any = SimpleNamespace(open=open_repository, services=SimpleNamespace(report=lambda _: None))
    found = submodules._look_up(submodules.Link(parent=parent, path="d"), repositories)
    assert opened == [(url, given)]
    assert (found.fact.address, found.fact.trouble) == ("https://h/o/d.git", "no answer")
    assert "s3cret" not in repr(found.fact)


@pytest.mark.parametrize(
    "name", ["pytorch_scatter", "pytorch-scatter", "torch_scatter", "torch-scatter", "scatter"]
)
def test_a_package_is_found_by_its_name_on_conda_or_pypi_and_by_its_short_one(name: str) -> None:
    assert targets.find(name).name == "pytorch_scatter"
    with pytest.raises(UsageError, match=r"^scater: unknown package$"):
        targets.find("scater")
