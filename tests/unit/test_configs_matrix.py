"""The matrix, the generated config files, and reading them back."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from groundwork.errors import ConfigError, UsageError
from megabuild.configs import matrix
from megabuild.configs.arch_lists import find_misplaced
from megabuild.configs.config import CONFIG_FOLDER, MATRIX_FILE, available, load, of_provider
from megabuild.configs.config_file import Content, stamped
from megabuild.configs.provider_name import ProviderName

ROOT = Path(__file__).resolve().parents[2]
#: as conda-smithy writes them
SMITHY = """\
blas_impl:
- mkl
channel_sources:
- conda-forge
cuda_compiler_version:
- '13.0'
docker_image:
- quay.io/condaforge/linux-anvil-x86_64:alma10
is_rc:
- false
pin_run_as_build:
  python:
    min_pin: x.x
    max_pin: x.x
python:
- 3.12.* *_cpython
- 3.13.* *_cp313
target_platform:
- linux-64
torch_version:
- 2.13.0
zip_keys:
- - cuda_compiler_version
  - blas_impl
"""


@pytest.fixture
def copy(repository: Path, tmp_path: Path) -> Path:
    """A place with the matrix and its config files, to be changed."""
    shutil.copy(repository / MATRIX_FILE, tmp_path)
    shutil.copytree(repository / CONFIG_FOLDER, tmp_path / CONFIG_FOLDER)
    return tmp_path


def test_every_key_of_a_config_has_one_value_but_for_what_is_built_together(repository: Path) -> None:
    configs = [load(repository, name) for name in available(repository)]
    assert {config.provider for config in configs} == {*ProviderName} - {ProviderName.LOCAL}
    for config in configs:
        several = {key for key, values in config.variant.items() if len(values) != 1}
        assert several == {"python", "is_python_min", "further_python"}, config.name
        further = dict(zip(config.pythons, config.variant["further_python"], strict=True))
        assert [python for python, is_further in further.items() if is_further == "false"] == ["3.12"], (
            config.name
        )


def test_a_config_of_wheels_has_the_pythons_that_its_release_supports(repository: Path) -> None:
    oldest = {name: load(repository, name) for name in available(repository) if name.endswith("_wheel")}
    assert {config.torch_version: config.pythons[0] for config in oldest.values()} == {
        "2.10.0": "3.10",
        "2.13.0": "3.10",
        "2.15.0": "3.11",
    }
    assert {config.variant["is_python_min"][:2] for config in oldest.values()} == {("true", "false")}


def test_on_a_full_disk_the_config_files_stay(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = available(copy)
    (copy / CONFIG_FOLDER / f"{before[0]}.yaml").unlink()

    def refuse(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(OSError, match="No space"):
        matrix.write(copy)
    assert available(copy) == before[1:]


def test_the_row_of_the_next_python_is_a_comment_away(copy: Path) -> None:
    path = copy / MATRIX_FILE
    row = "  # - 3.15.* *_cp315"
    text = path.read_text(encoding="utf-8")
    assert row in text
    path.write_text(text.replace(row, row.replace("# ", "", 1)), encoding="utf-8")
    matrix.write(copy)
    for name in available(copy):
        config = load(copy, name)
        assert ("3.15" in config.pythons) == (config.provider is ProviderName.CONDA_FORGE)


def test_what_was_not_generated_is_neither_deleted_nor_reported(copy: Path) -> None:
    folder = copy / CONFIG_FOLDER
    mine = (folder / "linux_64_cpu.yaml").read_text().replace("3.7.1", "3.8.0")
    left = {
        "linux_64_blas_implmklcuda_compiler_version13.0.yaml": SMITHY,
        "linux_64_cuda118.yaml": "written: [by hand]\n",
        "linux_64_mine.yaml": mine,  # a copy, edited
        "broken.yaml": "\xff: [",
    }
    for name, text in left.items():
        (folder / name).write_text(text, encoding="latin-1")
    (folder / "folder.yaml").mkdir()
    assert matrix.outdated(copy) == {}
    (folder / "osx_64_cpu.yaml").unlink()
    assert matrix.write(copy) == {".ci_support/osx_64_cpu.yaml": "missing"}
    assert {name: (folder / name).read_text(encoding="latin-1") for name in left} == left
    assert (folder / "folder.yaml").is_dir()


@pytest.mark.parametrize("name", ["linux_64_cpu", "osx_64_cpu"], ids=["the first", "the last"])
def test_anothers_file_in_the_place_of_a_generated_one_is_kept_and_named(copy: Path, name: str) -> None:
    """No other file is written or deleted then, whichever would come before it."""
    folder = copy / CONFIG_FOLDER
    (folder / f"{name}.yaml").write_text(SMITHY)
    (folder / "linux_aarch64_cpu.yaml").unlink()
    with (folder / "osx_arm64_cpu.yaml").open("a") as file:
        file.write("# changed\n")
    shutil.copy(folder / "linux_64_cuda130.yaml", folder / "linux_64_cuda131.yaml")
    assert matrix.outdated(copy) == {
        f".ci_support/{name}.yaml": "foreign",
        ".ci_support/linux_64_cuda131.yaml": "unknown",
        ".ci_support/linux_aarch64_cpu.yaml": "missing",
        ".ci_support/osx_arm64_cpu.yaml": "changed",
    }
    before = {path.name: path.read_bytes() for path in folder.glob("*.yaml")}
    with pytest.raises(ConfigError, match=rf"{name}\.yaml: "):
        matrix.write(copy)
    assert {path.name: path.read_bytes() for path in folder.glob("*.yaml")} == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("  - 2.28   ", "  # - 2.28   "), ("\nc_stdlib_version:", "\nanother_key:")],
    ids=["shorter", "absent"],
)
def test_zipped_keys_of_different_length_are_named(copy: Path, old: str, new: str) -> None:
    path = copy / MATRIX_FILE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match="c_stdlib_version"):
        matrix.generate(copy)


def test_a_new_provider_needs_every_key_that_all_others_have(copy: Path) -> None:
    path = copy / MATRIX_FILE
    needed = ("provider", "torch_version", "torch_source", "torch_sha256", "blas_impl")
    text = path.read_text().replace(
        "  - local                       # [provider in (", "  - local  # [provider in ("
    )
    for key, value in zip(needed, ("local", "2.13.0", "official", "None", "generic"), strict=True):
        selector = '# [provider == "local" and linux and x86_64]'
        text = re.sub(rf"(?m)^{key}:\n", rf"{key}:\n  - {value}  {selector}\n", text, count=1)
    for key, number in {"c_compiler": 14, "cxx_compiler": 14, "c_stdlib": 2.17}.items():
        text = re.sub(
            rf"(?m)^{key}_version:\n",
            f'{key}_version:\n  - {number}  # [provider == "local" and linux]\n',
            text,
        )
    path.write_text(text)
    expected = (
        "no value of channel_sources, libmagma_devel, torch_upstream_tests, triton_version for linux-64 and"
    )
    with pytest.raises(ConfigError, match=f"{expected} provider local"):
        matrix.write(copy)
    assert "linux_64_cpu_local" not in available(copy)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("providers", [2, 3])
def test_a_provider_needs_a_key_that_at_least_two_others_have(
    providers: int, number: int, tmp_path: Path
) -> None:
    keys = dict.fromkeys(("a", "b")[:number], ("1",))
    lacking, *others = [*ProviderName][:providers]
    served = {other: content(**keys, common=("1",)) for other in others}
    served[lacking] = content(**dict.fromkeys(keys, ()), common=("1",), own=("1",))
    if providers == 2:
        matrix._check_keys(tmp_path, "linux-64", served)
        return
    with pytest.raises(
        ConfigError, match=f"no value of {', '.join(keys)} for linux-64 and provider {lacking.value}$"
    ):
        matrix._check_keys(tmp_path, "linux-64", served)


def content(**variant: tuple[str, ...]) -> Content:
    return Content(variant=variant, zip_keys=(), unquoted=frozenset(), generated=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the lists of CUDA 12.9 and 13.0, and of 12.9 and Jetson, exchanged
        ("10.0;12.0+PTX        # [linux and provider", "10.0;11.0;12.0+PTX   # [linux and provider"),
        ("  - 8.7+PTX    ", "  - 11.0+PTX   "),
    ],
)
def test_an_architecture_in_the_row_of_another_cuda_is_named(copy: Path, old: str, new: str) -> None:
    path = copy / MATRIX_FILE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=r"nvcc of CUDA 12\.9 does not know 11\.0"):
        matrix.write(copy)


def lists(**archs: str) -> dict[str, list[str]]:
    cuda = ["None", *(name.replace("_", ".").removeprefix("cuda") for name in archs)]
    return {"cuda_compiler_version": cuda, "torch_cuda_arch_list": ["None", *archs.values()]}


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        (lists(cuda13_4="7.5;12.0+PTX", cuda13_5="7.5;12.0;13.0+PTX"), []),
        (
            lists(cuda13_4="7.5;12.0;13.0+PTX", cuda13_5="7.5;12.0+PTX"),
            ["CUDA 13.5 lacks 13.0, which CUDA 13.4 has"],
        ),
        (lists(cuda13_4="8.0;9.0", cuda13_5="7.5;9.0"), ["CUDA 13.5 has 7.5, which CUDA 13.4 dropped"]),
        (lists(cuda13_0="7.0;9.0"), ["nvcc of CUDA 13.0 does not know 7.0"]),
        (lists(cuda12_4="9.0;10.0"), ["nvcc of CUDA 12.4 does not know 10.0"]),
        (lists(cuda12_8="9.0a;10.0f+PTX"), []),
    ],
)
def test_lists_of_architectures_follow_their_cuda(values: dict[str, list[str]], problems: list[str]) -> None:
    assert find_misplaced(values) == problems
    for key in values:
        values[key] = values[key][::-1]
    assert find_misplaced(values) == problems, "the order of rows does not matter"


def test_a_platform_without_a_needed_key_is_named(copy: Path) -> None:
    path = copy / MATRIX_FILE
    needed = 'torch_python_base:\n  - "3.12"'
    text = path.read_text()
    assert needed in text
    path.write_text(text.replace(needed, f"{needed}  # [linux]"))
    with pytest.raises(
        ConfigError, match="no value of torch_python_base for osx-64 and provider conda-forge"
    ):
        matrix.write(copy)


def test_two_rows_of_one_name_are_refused(copy: Path) -> None:
    path = copy / MATRIX_FILE
    path.write_text(path.read_text().replace("blas_impl:\n", "blas_impl:\n  - mkl  # [osx and x86_64]\n", 1))
    with pytest.raises(ConfigError, match=r"two rows have the name osx_64_cpu$"):
        matrix.write(copy)


@pytest.mark.parametrize(
    ("lost", "says"), [(r"(?m)^  - 2\.6\.0 .*debian.*\n", r"torch_version .*debian"), (r"(?s).*", "no row")]
)
def test_a_matrix_without_a_row_is_named_and_deletes_no_config(copy: Path, lost: str, says: str) -> None:
    before, path = available(copy), copy / MATRIX_FILE
    path.write_text(re.sub(lost, "", path.read_text()))
    with pytest.raises(ConfigError, match=says):
        matrix.write(copy)
    assert available(copy) == before
    assert load(copy, "linux_64_cpu_debian").torch_version == "2.6.0"


def test_a_config_is_typed(repository: Path) -> None:
    config = load(repository, "linux_64_cuda130_generic.yaml")
    assert config.platform == "linux-64"
    assert (config.accelerator, config.cuda_version) == ("cuda130", "13.0")
    assert (config.blas, config.provider) == ("generic", "conda-forge")
    assert config.pythons == ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")
    assert config.docker_image.endswith("linux-anvil-x86_64:alma10")
    assert load(repository, "osx_arm64_cpu").docker_image == ""
    assert load(repository, "linux_64_cpu_debian").pythons == ("3.10", "3.11", "3.12", "3.13")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("provider: [debian]\n", "'target_platform' has no value"),
        (
            "blas_impl:\n- mkl\n  c: [unclosed\n",
            r"linux_64_cpu\.yaml: .*\b5:\d+",
        ),  # below the two lines of the header
        (f"a: ['{'x' * 10_000_001}']\n", "not a file of at most"),
        *(
            (text, "cannot be read for linux-64")
            for text in (
                "- a\n- b\n",
                "blas_impl: mkl\n",
                "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
                "a: &a [*a]\n",
                "".join(
                    f"{name}: &{name} [{f'*{former}, ' * 10}x]\n" for former, name in pairwise("abcdefghi")
                )
                + "zip_keys: [[*i]]\n",
                "a: [[x]]\n",
                f"zip_keys: {'[' * 1000}{']' * 1000}\n",
            )
        ),
    ],
)
def test_a_file_that_is_no_config_is_refused(copy: Path, text: str, complaint: str) -> None:
    (copy / CONFIG_FOLDER / "linux_64_cpu.yaml").write_text(stamped(text))
    with pytest.raises(ConfigError, match=complaint):
        load(copy, "linux_64_cpu")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("blas_impl:\n", "blas_impl:\n- generic\n", "'blas_impl' has 2 values instead of one"),
        ("- 3.12.* *_cpython\n", "- 3.12 or later\n", "'3.12 or later': not a pin of a Python version"),
    ],
)
def test_a_config_with_other_values_than_its_keys_have_is_refused(
    copy: Path, old: str, new: str, complaint: str
) -> None:
    path = copy / CONFIG_FOLDER / "linux_64_cpu.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load(copy, "linux_64_cpu")


def test_a_provider_that_no_selected_config_has_is_refused(repository: Path) -> None:
    names = [name for name in available(repository) if not name.endswith("debian")]
    assert of_provider(repository, names, ProviderName.WHEEL)
    with pytest.raises(UsageError, match=r"^--provider debian: no selected config") as caught:
        of_provider(repository, names, ProviderName.DEBIAN)
    assert caught.value.remedy == "choose from conda-forge, wheel"


def test_each_selector_of_the_matrix_means_the_platforms_that_all_its_words_mean() -> None:
    of_words = {
        "linux": {"linux-64", "linux-aarch64"},
        "osx": {"osx-64", "osx-arm64"},
        "x86_64": {"linux-64", "osx-64"},
        "aarch64": {"linux-aarch64"},
        "arm64": {"osx-arm64"},
    }
    for selector, platforms in matrix._SELECTORS.items():
        assert platforms == set.intersection(*(of_words[word] for word in selector.split(" and "))), selector
    assert {*of_words, "linux and x86_64"} - {*matrix._SELECTORS} == {"aarch64", "arm64"}


def test_generated_files_get_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "_texts", lambda _: {f"{CONFIG_FOLDER}/a.yaml": "x"})
    matrix.write(tmp_path)
    assert (tmp_path / CONFIG_FOLDER / "a.yaml").read_text() == "x"


@pytest.mark.parametrize("mend", [True, False])
@pytest.mark.parametrize("is_outdated", [True, False])
def test_only_files_that_stay_outdated_are_an_error(
    is_outdated: bool, mend: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"a.yaml": matrix.FileState.UNKNOWN, "b.yaml": matrix.FileState.CHANGED} if is_outdated else {}
    monkeypatch.setattr(matrix, "write" if mend else "outdated", lambda _: states)
    made = matrix.compared(tmp_path, mend=mend)
    assert made.exit_code == (ConfigError.exit_code if is_outdated and not mend else 0)
    verbs = ["deleted", "wrote"] if mend else ["unknown", "changed"]
    assert [line.split()[0] for line in made.lines[:2]] == (verbs if is_outdated else [])
    assert ("2 generated files outdated" in " ".join(made.lines)) == (is_outdated and not mend)
