"""Whether the extensions' sources can be had, before anything is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from cuda_code.kernels import KERNELS
from gpu_tools.slim.features import is_known
from gpu_tools.verify import gpu_probe
from groundwork.errors import PreflightError, ProviderError, UsageError
from megabuild.configs import config as configs
from megabuild.configs.config import Config, load
from megabuild.configs.platforms import Platforms
from megabuild.configs.render import PlannedPackage
from megabuild.plan import extensions
from megabuild.plan.extensions import ExtensionPlanner, packages_of, why_not
from megabuild.plan.fingerprint import PackageInputs
from megabuild.plan.options import Options
from megabuild.plan.plan import Method, PlanItem, Task
from megabuild.plan.run_choices import PygMode
from megabuild.plan.solving import Solver
from megabuild.providers.environment import Environment
from pin_audit import ci_rules
from pyg_extensions import sources
from pyg_extensions.find_wheel import Choice, WheelRequirements
from pyg_extensions.pyg_index import WheelTarget
from pyg_extensions.table import EXTENSIONS, Extension, ExtensionRelease, find, recipes, release

Variant = dict[str, tuple[str, ...]]
PLANNED = PlannedPackage(
    name="a", version="1", build_string="0", build_number=0, file_name="a-1-0.conda", subdir="linux-64",
    python="3.12", build=(), host=(), run=(), constraints=(), test=(),
)  # fmt: skip
NONE = Path("/no/cache")
WITH_ARCHIVE = tuple(extension for extension in EXTENSIONS if extension.has_sdist)


@pytest.fixture
def variant(repository: Path) -> Variant:
    return dict(load(repository, "linux_64_cpu").variant)


@pytest.fixture
def folder(tmp_path: Path, variant: Variant) -> Path:
    for extension in WITH_ARCHIVE:
        (tmp_path / release(extension, variant).archive).touch()
    return tmp_path


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address answers, and pip has no index."""

    def download(wanted: Sequence[ExtensionRelease], cache: Path) -> Path:
        raise ProviderError("no index")

    monkeypatch.setattr(sources, "why_unreachable", lambda address, seconds: "no such host")
    monkeypatch.setattr(sources, "download", download)


def test_without_one_every_extension_is_left_out_with_the_reason_and_the_remedy(
    repository: Path, variant: Variant
) -> None:
    found = sources.find(recipes(repository), variant, None, NONE)
    assert set(found.left_out) == set(recipes(repository))
    assert all("no such host" in why and "--pyg-sources" in why for why in found.left_out.values())


def test_a_folder_of_archives_stands_in_for_the_index(
    repository: Path, variant: Variant, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    found = sources.find(recipes(repository), variant, folder.name, NONE)
    assert found.overrides["pyg_source_base"] == (folder.as_uri(),)
    assert set(found.left_out) == {"pyg-lib"}
    assert found.overrides["pyg_sparse_metis"] == ("none",)
    assert not found.remote
    assert "without METIS" in found.notes["pytorch_sparse"]
    (folder / "torch_cluster-1.6.3.tar.gz").unlink()
    found = sources.find(recipes(repository), variant, str(folder), NONE)
    assert set(found.left_out) == {"pyg-lib", "pytorch_cluster"}
    assert "torch_cluster-1.6.3.tar.gz" in found.left_out["pytorch_cluster"]


@pytest.mark.parametrize("given", ["gone", "https://user:secret@[host/x"])
def test_a_folder_or_an_address_that_does_not_exist_is_refused(
    given: str, repository: Path, variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"gone: no such folder|not an address: https://\[host/x"):
        sources.find(recipes(repository), variant, given, NONE)


def test_checkouts_beside_the_archives_are_taken(repository: Path, variant: Variant, folder: Path) -> None:
    for name in ("pyg-lib", "METIS"):
        (folder / name).mkdir()
    found = sources.find(recipes(repository), variant, str(folder), NONE)
    assert not found.left_out
    assert not found.remote
    assert found.overrides["pyg_lib_source_path"] == (str(folder / "pyg-lib"),)
    assert found.folders == {"pyg-lib": folder / "pyg-lib", "pytorch_sparse": folder / "METIS"}
    assert "pyg_sparse_metis" not in found.overrides
    own = {**variant, "pyg_sparse_metis": ("none",), "pyg_lib_source_path": ("/of/the/config",)}
    assert sources.find(recipes(repository), own, str(folder), NONE).folders == {
        "pyg-lib": folder / "pyg-lib"
    }
    assert sources.find(recipes(repository), own, None, NONE).folders == {"pyg-lib": Path("/of/the/config")}


def test_a_folder_with_checkouts_only_leaves_the_archives_to_the_usual_address(
    repository: Path, variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "why_unreachable", lambda *_: "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sources/pyg-lib").mkdir(parents=True)
    found = sources.find(recipes(repository), variant, "sources", NONE)
    assert found.overrides == {"pyg_lib_source_path": (str(tmp_path / "sources/pyg-lib"),)}
    assert not found.left_out


def test_where_the_usual_address_is_closed_pip_s_index_serves_the_archives(
    repository: Path, variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(wanted: Sequence[ExtensionRelease], cache: Path) -> Path:
        asked.extend(one.archive for one in wanted)
        return cache

    monkeypatch.setattr(sources, "download", download)
    found = sources.find(recipes(repository), variant, None, tmp_path)
    assert sorted(asked)[0].startswith("torch_cluster-")
    assert len(asked) == len(WITH_ARCHIVE)
    assert found.overrides["pyg_source_base"] == (tmp_path.as_uri(),)
    assert len(found.notes) == len(WITH_ARCHIVE), "the plan says where they come from"
    assert set(found.left_out) == {"pyg-lib"}
    assert not found.remote


def test_sources_are_remote_one_by_one(
    repository: Path, variant: Variant, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "why_unreachable", lambda address, seconds: "")
    everything = set(recipes(repository))
    assert sources.find(everything, variant, None, NONE).remote == everything
    assert sources.find(everything, variant, "https://host.example/pyg", NONE).remote == everything
    assert sources.find(everything, variant, str(folder), NONE).remote == {"pyg-lib", "pytorch_sparse"}
    without_metis = {**variant, "pyg_sparse_metis": ("none",)}
    assert sources.find(everything, without_metis, str(folder), NONE).remote == {"pyg-lib"}


def test_an_address_of_the_user_that_does_not_answer_leaves_the_extensions_out(
    repository: Path, variant: Variant
) -> None:
    found = sources.find(recipes(repository), variant, "https://own.example/pyg", NONE)
    assert found.overrides["pyg_source_base"] == ("https://own.example/pyg",)
    assert all("no such host" in found.left_out[extension.conda] for extension in WITH_ARCHIVE)


def test_an_address_with_a_password_gets_into_no_variant(
    repository: Path, variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fetch(address: str, target: Path, sha256: str, *, limit: int) -> Path:
        asked.append(f"{address} {target.name} {sha256[:4]}")
        return target

    monkeypatch.setattr(sources, "fetch", fetch)
    given = "https://user:secret@host.example/pyg/?token=secret"
    found = sources.find(recipes(repository), variant, given, tmp_path)
    assert found.overrides["pyg_source_base"] == ((tmp_path / "sdists").as_uri(),)
    assert "secret" not in repr(found)
    start = "https://user:secret@host.example/pyg/torch_scatter/torch_scatter-2.1.2.tar.gz?token=secret"
    assert f"{start} torch_scatter-2.1.2.tar.gz 69b3" in asked


def test_archives_that_no_index_has_any_more_come_from_their_repository(
    repository: Path, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retired(url: str, seconds: float) -> str:
        return "HTTP status 404" if url.endswith(".tar.gz") else ""

    monkeypatch.setattr(sources, "why_unreachable", retired)
    found = sources.find(recipes(repository), variant, None, NONE)
    assert not found.left_out
    assert found.remote == set(recipes(repository)), "commits are fetched as well"
    assert found.overrides["pyg_scatter_git"] == ("https://github.com/rusty1s/pytorch_scatter.git",)
    assert variant["pyg_scatter_commit"][0][:12] in found.notes["pytorch_scatter"]


def test_the_table_is_in_step_with_recipes_and_what_is_in_packages(
    repository: Path, variant: Variant
) -> None:
    assert {extension.conda for extension in EXTENSIONS} == set(recipes(repository))
    for extension in EXTENSIONS:
        recipe = recipes(repository)[extension.conda].read_text()
        assert f"module: {extension.name}\n" in recipe
        assert f"repository: {extension.repository}\n" in recipe
        assert release(extension, variant).version, f"conda_build_config.yaml lacks {extension.key}_version"
        assert extension.has_sdist == (f"{extension.key}_sha256" in variant)
        if extension.checkout:
            assert f"git: {extension.checkout.repository}\n" in recipe
            assert f"path: ${{{{ {extension.checkout.key} }}}}" in recipe


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.name)
def test_an_extension_is_in_every_list_of_extensions(extension: Extension, repository: Path) -> None:
    assert extension.name in KERNELS, "recipe/pyg/common/cuda_code/kernels.py lacks its libraries"
    assert extension.able(["9.0"]) == ("9.0",)
    assert extension.name in gpu_probe.OPERATIONS, "src/gpu_tools/verify/gpu_probe.py lacks an operation"
    assert is_known(canonicalize_name(extension.name)), "src/gpu_tools/slim/features.py does not know it"
    packages = (repository / "src" / "pin_audit" / "packages.yaml").read_text()
    assert f"{extension.key}_version" in packages, "src/pin_audit/packages.yaml lacks it"
    if extension.conda.startswith("pytorch_"):
        assert extension.conda in ci_rules._EXTENSIONS, "src/pin_audit/ci_rules.py lacks it"


@pytest.mark.parametrize(
    ("config", "says"),
    [("osx_arm64_cpu", "for Linux only"), ("linux_64_cpu_debian", "debian"), ("linux_64_cpu", "")],
)
def test_a_config_that_builds_none_says_why(repository: Path, config: str, says: str) -> None:
    why = why_not(load(repository, config), pyg=PygMode.AUTO, rehearse=False)
    assert says in why
    assert bool(says) == bool(why)


def test_extensions_are_cross_compiled_only_where_the_channel_has_a_pytorch_for_this_machine(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "machine_platform", lambda: "linux-64")
    debian = load(repository, "linux_aarch64_cpu_debian")
    for mode in (PygMode.SOURCE, PygMode.AUTO):  # the hint on a machine of its own is to compile them
        why = why_not(debian, pyg=mode, rehearse=False)
        assert "a PyTorch for linux-64, and debian has none; compile them on a linux-aarch64 machine" in why
    assert why_not(load(repository, "linux_aarch64_cpu"), pyg=PygMode.SOURCE, rehearse=False) == ""
    monkeypatch.setattr(configs, "machine_platform", lambda: "linux-aarch64")
    native = load(repository, "linux_aarch64_cpu_debian")
    assert why_not(native, pyg=PygMode.SOURCE, rehearse=False) == ""
    for mode in (PygMode.AUTO, PygMode.PREBUILT):
        assert "(--pyg source compiles them)" in why_not(native, pyg=mode, rehearse=False)


def test_an_extension_is_built_with_those_that_it_needs(repository: Path, folder: Path) -> None:
    options = Options(config=load(repository, "linux_64_cpu"), root=repository, output=folder, cache=folder,
                      extensions=("sparse",), pyg_index=str(folder), pyg_sources=str(folder))  # fmt: skip
    environment = Environment(channels=(), pythons=(), overrides={"python": ("3.12.* *_cpython",)})
    planned = ExtensionPlanner.find(options, print).plan(environment, (), print)
    compiled = {task.extension for task in planned if task.method is Method.COMPILE}
    assert compiled == {"pytorch_scatter", "pytorch_sparse"}


def test_a_plan_has_the_note_of_each_wanted_extension_once(repository: Path, folder: Path) -> None:
    options = Options(config=load(repository, "linux_64_cpu"), root=repository, output=folder, cache=folder)
    notes = {
        "pytorch_scatter": "first",
        "pytorch_sparse": "second",
        "pytorch_cluster": "first",
        "pyg_lib": "other",
    }
    planner = ExtensionPlanner(
        options=options,
        reason="",
        wanted=("pytorch_scatter", "pytorch_sparse", "pytorch_cluster"),
        recipes={},
        sources=sources.Sources(notes=notes),
    )
    assert planner.notes == ("first", "second")


PYTHON = {"python": ("3.12.* *_cpython",)}


def options_for(repository: Path, folder: Path, name: str, *wanted: str) -> Options:
    return Options(config=load(repository, name), root=repository, output=folder, cache=folder / "cache",
                   extensions=wanted, pyg_index=str(folder), pyg_sources=str(folder))  # fmt: skip


def test_a_prebuilt_wheel_fits_the_values_of_the_run(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the provider's glibc and of --arch-list, not of the config; from the index that the user names."""
    asked: list[object] = []

    def find_wheel(wanted: object, version: str, *, index: object, cache: Path, report: object) -> Choice:
        asked.extend([wanted, version, index, cache])
        return Choice(wheel=None, reason="none")

    monkeypatch.setattr(extensions, "find_wheel", find_wheel)
    monkeypatch.setattr(extensions, "PygIndex", lambda address: f"index {address}")
    options = options_for(repository, folder, "linux_64_cuda130", "scatter")
    of_run = {
        "c_stdlib_version": ("2.41",),
        "torch_cuda_arch_list": ("9.0;12.0+PTX",),
        "pyg_scatter_version": ("9",),
    }
    environment = Environment(channels=(), pythons=(), overrides={**PYTHON, **of_run})
    (task,) = ExtensionPlanner.find(options, print).plan(environment, (), print)
    target = WheelTarget(
        python="3.12",
        torch_version=options.config.torch_version,
        cuda_version="13.0",
        platform="linux-64",
        glibc="2.41",
    )
    wanted = WheelRequirements(extension=find("scatter"), target=target, archs=("9.0", "12.0+PTX"))
    assert asked == [wanted, "9", f"index {folder}", folder / "cache"]
    assert task.archs == 2


def test_an_extension_s_key_has_its_wheel_and_the_environments_of_each_of_its_packages(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's packages and the other extensions' come from the run, not from a channel."""
    solvers: list[tuple[Environment, Platforms, list[str]]] = []
    keys: list[tuple[object, ...]] = []

    class FakeSolver:
        def __init__(self, given: Environment, platforms: Platforms, own: Sequence[PlannedPackage]) -> None:
            solvers.append((given, platforms, [package.name for package in own]))

        def built_with(self, package: PlannedPackage) -> list[str]:
            return [f"host of {package.name}"]

    def render_tasks(config: Config, name: str, recipe: Path, values: object) -> tuple[Task, ...]:
        packages = [replace(PLANNED, name=f"{name}-{number}") for number in range(2)]
        items = tuple(PlanItem(package=package) for package in packages)
        return (Task(extension=name, python="3.12", recipe=recipe, items=items, overrides=PYTHON),)

    def inputs(_: object, task: Task, *collected: object) -> PackageInputs:
        keys.append((task.extension, *collected))
        return PackageInputs(text=task.extension, files={}, planned={}, staging="")

    monkeypatch.setattr(extensions, "Solver", FakeSolver)
    monkeypatch.setattr(extensions, "render_tasks", render_tasks)
    monkeypatch.setattr(extensions, "choose_wheel", lambda *_: Choice(wheel=folder / "a.whl", reason="a.whl"))
    monkeypatch.setattr(ExtensionPlanner, "inputs", inputs)
    options = options_for(repository, folder, "linux_64_cpu", "scatter", "sparse")
    environment = Environment(channels=(), pythons=(), overrides=PYTHON)
    torch = [PlanItem(package=replace(PLANNED, name="pytorch"))]
    tasks = ExtensionPlanner.find(options, print).plan(environment, torch, print)
    names = ["pytorch_scatter", "pytorch_sparse"]
    packages = [f"{name}-{number}" for name in names for number in range(2)]
    assert solvers == [(environment, options.config.platforms, [*packages, "pytorch"])]
    expected = [[[f"host of {name}-{number}"] for number in range(2)] for name in names]
    assert keys == [(name, folder / "a.whl", torch, each) for name, each in zip(names, expected, strict=True)]
    digests = [PackageInputs(text=name, files={}, planned={}, staging="").digest for name in names]
    assert [{item.fingerprint for item in task.items} for task in tasks] == [{digest} for digest in digests]


def test_extensions_are_rendered_with_the_values_of_the_run_and_of_their_sources(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a wanted one needs, and that those need, too; a local source comes before the provider's values."""
    rendered: list[tuple[str, str, object]] = []
    needs = {"pyg-lib": (), "pytorch_cluster": ("pyg-lib",), "pytorch_scatter": ("pytorch_cluster",)}

    def render_tasks(config: Config, name: str, recipe: Path, values: object) -> tuple[Task, ...]:
        rendered.append((config.name, recipe.parent.name, values))
        package = replace(PLANNED, name=name, test=needs.get(name, ()))
        items = (PlanItem(package=package),)
        return (Task(extension=name, python="3.12", recipe=recipe, items=items, overrides=PYTHON),)

    monkeypatch.setattr(extensions, "render_tasks", render_tasks)
    options = options_for(repository, folder, "linux_64_cpu", "scatter")
    planner = ExtensionPlanner.find(options, print)
    of_provider = {**PYTHON, "c_compiler_version": ("15",), sources.BASE: ("https://provider.invalid",)}
    packages = packages_of(planner.render(of_provider))
    assert {package.name for package in packages} == {*needs}
    assert planner.sources.overrides[sources.BASE] == (folder.as_uri(),)
    expected = {**of_provider, **planner.sources.overrides}
    assert rendered == [("linux_64_cpu", name, expected) for name in planner.recipes]


@pytest.mark.parametrize("unsolvable", ["torch_scatter", "torch_sparse"])
def test_an_extension_that_cannot_be_installed_is_not_compiled(
    unsolvable: str, repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built_with(_: Solver, package: PlannedPackage) -> list[str]:
        if unsolvable.removeprefix("torch_") in package.name:
            raise PreflightError("no such package")
        return []

    monkeypatch.setattr(Solver, "built_with", built_with)
    options = Options(config=load(repository, "linux_64_cpu"), root=repository, output=folder, cache=folder,
                      extensions=("sparse",), pyg_index=str(folder), pyg_sources=str(folder))  # fmt: skip
    environment = Environment(channels=(), pythons=(), overrides={"python": ("3.12.* *_cpython",)})
    planned = ExtensionPlanner.find(options, print).plan(environment, (), print)
    assert len(planned) > 1
    assert "pytorch_scatter-py312" in {task.name: task.needs for task in planned}["pytorch_sparse-py312"]
    for task in planned:
        is_unsolvable = unsolvable.removeprefix("torch_") in task.extension
        assert (task.method, "no such package" in task.reason) == (
            Method.NOTHING if is_unsolvable else Method.COMPILE, is_unsolvable,
        )  # fmt: skip
