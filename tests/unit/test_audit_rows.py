"""Facts in, a row's status and sentence out; values of real releases where a verdict was once wrong."""

from __future__ import annotations

import pytest
from audit_samples import asks, audit, ci_has, has, pinned, row, target, vendors, wheel
from msgspec import structs

from pin_audit.cells import cells
from pin_audit.facts import (
    AnyFact,
    CiPin,
    Column,
    GlobalPin,
    Newest,
    RecipeArchs,
    Requirement,
    Scope,
    SourceOutcome,
    UpstreamArchs,
    Where,
    split_archs,
)
from pin_audit.name_map import names
from pin_audit.rows import AuditRow, cuda_of_wheel
from pin_audit.statuses import Status
from pin_audit.table import tabulate

CUDA129, CUDA130 = ("linux_64_cuda129",), ("linux_64_cuda130", "linux_aarch64_cuda130")
LINUX = ("linux_64_cpu", "linux_64_cuda129", "linux_64_cuda130", "linux_aarch64_cuda130")
CONFLICT, OLDER, NEWER, MISSING, UNKNOWN, UNPINNED, IN_STEP = Status
TOOLKIT = wheel("cuda-toolkit", "==13.0.3")
NCCL = (TOOLKIT, wheel("nvidia-nccl-cu13", "==2.29.7"), asks("nccl", "2.*", configs=CUDA130))
SLEEF = vendors("third_party/sleef", "3.8-12-gabc1234", commit="abc1234" + "0" * 33)
PYBIND = (vendors("third_party/pybind11", "v2.13.6"), asks("pybind11", "*"))
PROTOBUF = vendors("third_party/protobuf", "v21.12", commit="f0dc78d7" + "0" * 32)
PYTHONS = [asks("python", f"3.{minor}.* *_cpython") for minor in range(10, 15)]
CI_PACKAGING = (ci_has("packaging", ">=24.2"), asks("packaging", "*", sections=("host",)))
CI_NUMPY = (ci_has("numpy", "1.26.2"), ci_has("numpy", "2.3.4"))
SILENT = {"ci_pins": "github.com: no answer", "submodules": "github.com: no answer"}


def gcc_pin(version: str, *cuda: str, migration: str = "") -> GlobalPin:
    pin = pinned("c_compiler_version", version, "linux-64", "linux-aarch64", migration=migration)
    return structs.replace(pin, holds=structs.replace(pin.holds, cuda=cuda))


def had(name: str, value: str) -> Newest:
    """What the channel had in an older snapshot."""
    return Newest(name=name, value=value, where=Where(inferred="a copy", fetched="2026-01-02T00:00:00Z"))


ON_MAC = Newest(name="triton", value="3.8.0", holds=Scope(platforms=("osx-arm64",)))
GCC_PINS = (gcc_pin("15", "None"), gcc_pin("14", "12.9"), gcc_pin("15", "13.0", migration="cuda130"))
VERDICTS: list[tuple[str, list[AnyFact], Status, str]] = [
    # the wheel against the recipe
    ("sympy", [wheel("sympy", ">=1.13.3"), asks("sympy", ">=1.13.3")], IN_STEP, ""),
    ("sympy", [wheel("sympy", "==1.13.1"), asks("sympy", ">=1.13.3")], CONFLICT, "no version satisfies both"),
    ("setuptools", [wheel("setuptools", ">=77.0.3"), asks("setuptools", "<82")], OLDER, "<82"),
    ("networkx", [wheel("networkx", ">=2.5.1"), asks("networkx", "*")], MISSING, "any version"),
    ("networkx", [wheel("networkx", ">=2.5.1,<4"), asks("networkx", ">=2.5.1")], MISSING, "requires >=2.5.1"),
    ("cuda-bindings", [TOOLKIT, wheel("cuda-bindings", ">=13.0.3,<14")], MISSING, "the recipe does not"),
    ("sympy", [wheel("sympy", ">=1.13.3"), asks("sympy", ">=1.13.3", configs=LINUX)], MISSING, "recipe does not [osx"),
    ("sympy", [wheel("sympy", ">=1.13.3", 'platform_system == "Linux"'), asks("sympy", ">=1.13.3", configs=LINUX)],
     IN_STEP, ""),
    ("sympy", [wheel("sympy", ">=1.13.3"), asks("sympy", ">=1.13.3", configs=LINUX[:3]),
               asks("sympy", ">=1.13.3", sections=("host",))], IN_STEP, ""),
    ("triton", [wheel("triton", "==3.7.1", 'platform_system == "Linux"'),
                asks("triton", "==3.7.1", configs=CUDA129 + CUDA130)], IN_STEP, ""),
    ("triton", [wheel("triton", "==3.7.1", 'platform_system == "Linux"'), asks("triton", "==3.7.1", configs=CUDA129)],
     MISSING, "the recipe does not [cuda130]"),
    # the installed package's requirements count, without them the build's
    ("setuptools", [wheel("setuptools", ">=77"), asks("setuptools", "<70", sections=("host",)),
                    asks("setuptools", ">=77", sections=("run",))], IN_STEP, ""),
    ("setuptools", [wheel("setuptools", ">=77"), asks("setuptools", "<70", sections=("host",))], CONFLICT, ">=77"),
    ("numpy", [ci_has("numpy", "1.26", "12.9"), asks("numpy", ">=2", configs=CUDA130),
               asks("numpy", "1.26.*", configs=CUDA129)], IN_STEP, ""),
    # an exact requirement of the wheel decides, not other versions that work
    ("triton", [wheel("triton", "==3.7.1"), ci_has("triton", "3.6.0"), asks("triton", "*"), has("triton", "3.7.1")],
     IN_STEP, ""),
    ("opt_einsum", [wheel("opt-einsum", ">=3.3", 'extra == "opt-einsum"')], IN_STEP, "extra"),
    ("opt_einsum", [wheel("opt-einsum", ">=3.3", 'extra == "opt-einsum"'), asks("opt_einsum", "<3")],
     CONFLICT, ">=3.3"),
    ("colorama", [wheel("colorama", ">=99", 'platform_system == "Windows"'), asks("colorama", "<1")], UNPINNED, ""),
    ("python", [wheel("python", ">=3.11"), ci_has("python", "3.11, 3.14t, 3.15"), *PYTHONS], CONFLICT, "3.10.*"),
    ("python", [wheel("python", ">=3.10"), ci_has("python", "3.10, 3.11, 3.12, 3.13, 3.14"), *PYTHONS], IN_STEP, ""),
    ("prometheus_client", [wheel("prometheus-client", ">=0.18"), asks("prometheus_client", ">=0.18")], IN_STEP, ""),
    # CUDA
    ("nccl", [*NCCL, asks("nccl", "<2.29", configs=CUDA129)], IN_STEP, ""),
    ("nccl", [*NCCL, asks("nccl", "<2.29", configs=CUDA130)], CONFLICT, ""),
    ("libnvshmem", [wheel("nvidia-cuda-runtime-cu12", "==12.8.90"), wheel("nvidia-nvshmem-cu12", "==3.3.20")],
     IN_STEP, ""),
    ("nccl", [wheel("nvidia-cuda-runtime-cu12", "<13.0,>=12.5.82"), wheel("nvidia-nccl-cu12", "<3,>=2.27"),
              asks("nccl", "2.20.*", configs=CUDA130), asks("nccl", "2.27.*", configs=CUDA129)], IN_STEP, ""),
    ("nccl", [wheel("nvidia-cuda-runtime-cu12", "<13.0,>=12.5.82"), wheel("nvidia-nccl-cu12", "<3,>=2.27"),
              asks("nccl", "2.20.*", configs=CUDA129)], CONFLICT, ">=2.27"),
    ("nccl", [wheel("cuda-toolkit", "==13.*"), wheel("nvidia-nccl-cu13", "<3,>=2.27"),
              asks("nccl", "2.20.*", configs=CUDA130)], CONFLICT, ">=2.27"),
    ("nvidia-cudnn-frontend", [wheel("nvidia-cudnn-frontend", ">=1.31"),
                               asks("nvidia-cudnn-frontend", "<1.10", configs=CUDA130)], CONFLICT, ">=1.31"),
    ("libcublas", [wheel("nvidia-cublas", "==13.1.0.3"), TOOLKIT, asks("libcublas-dev", "13.*", configs=CUDA130),
                   asks("cuda-version", "13.0.*", configs=CUDA130)], IN_STEP, "cuda-version decides"),
    ("libcublas", [wheel("nvidia-cublas", "==13.1.0.3"), TOOLKIT, asks("libcublas-dev", "13.*", configs=CUDA130[:1]),
                   asks("libcublas-dev", "*", configs=CUDA130[1:]), has("libcublas-dev", "13.2"),
                   asks("cuda-version", "13.0.*", configs=CUDA130)], IN_STEP, "cuda-version decides"),
    ("libcublas", [asks("libcublas-dev", "13.*", configs=CUDA130)], UNPINNED, "names no version"),
    ("cuda-version", [TOOLKIT, asks("cuda-version", "12.9", configs=CUDA130)], CONFLICT, ""),
    ("cuda-version", [TOOLKIT, asks("cuda-version", "==13.0", configs=CUDA130)], IN_STEP, ""),
    ("cuda-version", [ci_has("cuda", "cu130"), asks("cuda-version", "12.9.*", configs=CUDA129)], OLDER, "cu130"),
    ("magma", [ci_has("magma", "2.10.0"), asks("libmagma", "<0.0a0", sections=("constraint",)),
               asks("libmagma-devel", "2.10.0.*")], IN_STEP, ""),
    ("cudnn", [ci_has("cudnn", "8.9.2", "11.8"), asks("libcudnn-dev", "9.*", configs=CUDA130)], UNPINNED, ""),
    ("cudnn", [ci_has("cudnn", "8.9.2", "13"), asks("libcudnn-dev", "9.*", configs=CUDA130)], NEWER, ""),
    # conda-forge
    ("numpy", [wheel("numpy", ">=2.1"), asks("numpy", ">=2.1"), pinned("numpy", "1.26")], CONFLICT, "pins 1.26"),
    ("numpy", [wheel("numpy", ">=2.1"), asks("numpy", ">=2.1"), pinned("numpy", "1.26"),
               pinned("numpy", "2", migration="numpy2")], IN_STEP, ""),
    ("numpy", [asks("numpy", ">=2", sections=("run",)), pinned("numpy", "1.26")], UNPINNED, ""),
    ("mkl", [asks("mkl-devel", "2026.*"), pinned("mkl_devel", "2023"), pinned("mkl", "2026")], CONFLICT, "pins 2023"),
    ("pybind11-abi", [asks("pybind11-abi", "11.*"), pinned("pybind11_abi", "4")], CONFLICT, ""),
    ("some-lib", [asks("some-lib", "11.*"), pinned("some_lib", "4")], CONFLICT, ""),  # unknown to name_map.yaml
    ("pybind11-abi", [asks("pybind11-abi", "11.*"), pinned("pybind11_abi", "4"),
                      pinned("pybind11_abi", "11", migration="pybind11_abi11")], UNPINNED, ""),
    ("mkl", [asks("mkl-devel", "2026.*", configs=LINUX[:1]), pinned("mkl_devel", "2023", "osx-64")], UNPINNED, ""),
    ("gcc", [asks("gcc", "14.*", sections=("build",)), pinned("c_compiler_version", "15")], OLDER, ""),
    ("gcc", [asks("gcc", "14.*", sections=("build",), configs=LINUX), *GCC_PINS], OLDER, "pins 15 ["),
    ("gcc", [asks("gcc", "14.*", sections=("build",), configs=CUDA129), *GCC_PINS], UNPINNED, ""),
    ("triton", [asks("triton", "==3.7.1"), has("triton", "3.6.0")], CONFLICT, "nothing newer than 3.6.0"),
    ("triton", [asks("triton", "==3.7.1", configs=LINUX), has("triton", "3.6.0"), ON_MAC], CONFLICT, "than 3.6.0"),
    ("triton", [asks("triton", "==3.7.1"), had("triton", "3.6.0")], UNPINNED, ""),
    ("zlib", [asks("zlib", "*"), pinned("zlib", "1")], MISSING, "pins 1"),
    ("zlib", [asks("zlib", "1.*", sections=("run",)), asks("zlib", "*"), pinned("zlib", "1")], UNPINNED, ""),
    ("zlib", [asks("zlib", "1.*"), pinned("zlib", "${{ zlib }}")], UNPINNED, ""),
    ("mkl", [asks("mkl-devel", "==2026.1"), has("mkl-devel", "2026.0"), has("mkl", "2026.1")], CONFLICT, "than 2026.0"),
    ("libuv", [asks("libuv", "*")], UNPINNED, "names no version"),
    # what upstream vendors and builds with
    ("sleef", [SLEEF, asks("sleef", "<3.7")], OLDER, ""),
    ("sleef", [SLEEF, asks("sleef", ">=3.9")], NEWER, ""),
    ("pybind11", [*PYBIND, has("pybind11", "3.0.1")], NEWER, "the newest, 3.0.1"),
    ("pybind11", [*PYBIND, has("pybind11", "2.13.6")], IN_STEP, ""),
    ("pybind11", [*PYBIND], UNKNOWN, ""),
    ("pybind11", [*PYBIND, had("pybind11", "2.12.0")], UNKNOWN, "had 2.12.0 when last read"),
    ("packaging", [*CI_PACKAGING, has("packaging", "25.0")], IN_STEP, ""),
    ("packaging", [*CI_PACKAGING, has("packaging", "23.0")], MISSING, ""),
    ("numpy", [ci_has("numpy", ">=2.2"), asks("numpy", "*", sections=("host",))], MISSING, ""),
    ("numpy", [*CI_NUMPY, asks("numpy", "2.*")], IN_STEP, ""),
    ("numpy", [ci_has("numpy", ">=2.2"), asks("numpy", "<2")], CONFLICT, ">=2.2"),
    ("numpy", [ci_has("numpy", ">=2.2"), asks("numpy", ">=2")], IN_STEP, ""),
    ("ninja", [ci_has("ninja", "1.11.1.4"), asks("ninja", "*", sections=("build",)), has("ninja", "1.10")], OLDER, ""),
    # a tool of any version is enough, unless it is known to be older
    ("ninja", [ci_has("ninja", "1.11.1.4"), asks("ninja", "*", sections=("build",))], IN_STEP, ""),
    ("eigen", [ci_has("eigen", "5.0.1"), asks("eigen", "*", sections=("host",)), has("eigen", "5.0.1")], IN_STEP, ""),
    ("libprotobuf", [PROTOBUF, asks("libprotobuf", "3.21.12.*")], IN_STEP, ""),
    ("libprotobuf", [PROTOBUF, asks("libprotobuf", "7.35.1.*")], NEWER, "v21.12 (3.21.12)"),
    ("libcudss", [CiPin(name="cudss", trouble="no such script"), asks("libcudss-dev", "<0.8", configs=CUDA130)],
     UNKNOWN, "no such script"),
    ("xnnpack", [vendors("third_party/XNNPACK", "5110103", commit="5110103" + "0" * 33), asks("xnnpack", "*"),
                 has("xnnpack", "2024.8")], UNPINNED, ""),
    ("newlib", [vendors("third_party/newlib", "v1.0")], IN_STEP, "compiled in"),
    ("ittapi", [vendors("third_party/ittapi", "v3.2")], IN_STEP, "USE_ITT=0"),
    ("onednn", [vendors("third_party/ideep/mkl-dnn", "v3.12"), asks("onednn", "<1")], IN_STEP, "compiled in"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "facts", "status", "words"), VERDICTS)
def test_status_of_a_row(name: str, facts: list[AnyFact], status: Status, words: str) -> None:
    found = row(name, *facts)
    assert found.verdict.status is status, found.verdict.sentence
    assert words in found.verdict.sentence


@pytest.mark.parametrize(("name", "facts", "configs"), [
    ("gcc", [asks("gcc", "14.*", sections=("build",), configs=LINUX), *GCC_PINS], "linux cpu, linux cuda130"),
    ("gcc", [asks("gcc", "14.*", sections=("build",), configs=LINUX[:1]), *GCC_PINS], ""),
    ("sleef", [SLEEF, asks("sleef", "<3.7", configs=CUDA130), asks("sleef", ">=3.8", configs=CUDA129)], "cuda130"),
    ("sleef", [SLEEF, asks("sleef", "<3.7", configs=CUDA130)], ""),
])  # fmt: skip
def test_a_verdict_names_all_configs_that_it_concerns_unless_these_are_the_recipe_s(
    name: str, facts: list[AnyFact], configs: str
) -> None:
    sentence = row(name, *facts).verdict.sentence
    assert sentence.partition(" [")[2].removesuffix("]") == configs


def test_a_to_do_names_the_line_of_the_requirement_that_it_concerns() -> None:
    elsewhere = structs.replace(asks("nccl", "2.*", configs=CUDA130), where=Where(file="recipe.yaml", line=7))
    fitting = asks("nccl", "2.29.*", configs=CUDA129)
    todo = row("nccl", fitting, elsewhere, wheel("nccl", ">=2.27")).verdict.todo
    assert todo == "require >=2.27 (recipe.yaml:7)"


PAUSED = structs.replace(pinned("mkl_devel", "2027", migration="old"), paused=True)
MKL = asks("mkl-devel", "2026.*", configs=LINUX[:1])
INFERRED = structs.replace(SLEEF, where=Where(inferred="as in 2.12.0"))
IN_WHEEL = structs.replace(ci_has("eigen", "5.0"), where=Where(index="pip's", inferred="a header"))


@pytest.mark.parametrize(("name", "facts", "column", "parts"), [
    ("cudnn", [ci_has("cudnn", "8.9", "11.8"), ci_has("cudnn", "9.1", "13.0"), asks("libcudnn-dev", "9.*")],
     Column.UPSTREAM, ["9.1 (CI, CUDA 13.0)"]),
    ("sleef", [INFERRED], Column.UPSTREAM, ["3.8-12-gabc1234 (submodule, inferred)"]),
    ("eigen", [IN_WHEEL], Column.UPSTREAM, ["5.0 (wheel)"]),
    ("zlib", [asks("zlib", "1.*", sections=("run",)), asks("zlib", "*")], Column.RECIPE, ["1.*"]),
    ("zlib", [asks("zlib", "1.*", configs=LINUX), asks("zlib", "*")], Column.RECIPE, ["1.* [linux]", "any"]),
    ("libblas", [asks("libblas", "* *mkl")], Column.RECIPE, ["* *mkl"]),
    ("mkl", [MKL, PAUSED, pinned("mkl_devel", "2023", "osx-64"), pinned("mkl_devel", "2024", "linux-64"),
             pinned("mkl_devel", "2025", migration="mkl25")], Column.CONDA_FORGE,
     ["2024 (pin)", "2025 (migration mkl25)"]),
    ("pybind11", [*PYBIND, had("pybind11", "2.12")], Column.CONDA_FORGE, ["2.12 (newest in a copy of 2026-01-02)"]),
    ("pybind11", [*PYBIND, has("pybind11", "2.12")], Column.CONDA_FORGE, ["2.12 (newest)"]),
])  # fmt: skip
def test_a_cell_has_each_value_with_its_source_and_its_configs(
    name: str, facts: list[AnyFact], column: Column, parts: list[str]
) -> None:
    assert [f"{part.text} {part.remark}".strip() for part in cells(row(name, *facts))[column]] == parts


@pytest.mark.parametrize(
    ("runtimes", "cuda"),
    [
        ([("cuda-toolkit", "==13.0.3")], "13.0"),
        ([("cuda-toolkit", "==13.0.*"), ("nvidia-cuda-runtime", "==13.0.96")], "13.0"),
        ([("nvidia-cuda-runtime", "~=13.0.48")], "13.0"),
        ([("nvidia-cuda-runtime-cu12", "<13.0,>=12.5.82")], "12"),  # TensorFlow 2.21's
        ([("nvidia-cuda-runtime", "<14,>=13.0.48")], "13"),
        ([("nvidia-cuda-runtime", "~=13.0")], "13"),  # onnxruntime-gpu 1.31's: any 13.x
        ([("cuda-toolkit", "==13.*")], "13"),
        ([("nvidia-cuda-runtime-cu12", "*")], "12"),
        ([("cuda-toolkit", "==12.*"), ("cuda-toolkit", "==13.*")], ""),
        ([("nvidia-cuda-runtime", "*")], ""),
    ],
)
def test_cuda_of_a_wheel_is_a_version_or_a_major_number(runtimes: list[tuple[str, str]], cuda: str) -> None:
    assert cuda_of_wheel([wheel(*runtime) for runtime in runtimes]) == cuda


@pytest.mark.parametrize(("marker", "status"), [
    ('platform_system == "Windows"', CONFLICT), ('sys_platform == "win32"', CONFLICT), ('os_name == "nt"', CONFLICT),
    ('platform_machine == "AMD64"', CONFLICT), ('platform_machine == "ARM64"', CONFLICT),
    ('platform_system == "Linux"', UNPINNED),
    ('sys_platform != "win32"', UNPINNED), ('os_name == "posix"', UNPINNED), ('platform_machine == "x86_64"', UNPINNED),
    # not to be evaluated: it holds
    ("no marker", CONFLICT), ('sys_platform ~= "w"', CONFLICT),
])  # fmt: skip
def test_markers_hold_on_windows_as_python_evaluates_them(marker: str, status: Status) -> None:
    configs = ["win_arm64_cpu" if "ARM64" in marker else "win_64_cpu"]
    found = row(
        "colorama",
        wheel("colorama", ">=99", marker),
        asks("colorama", "<1", configs=configs),
        configs=configs,
    )
    assert found.verdict.status is status, found.verdict.sentence


@pytest.mark.parametrize(("name", "facts", "status"), [
    ("pybind11", PYBIND, UNKNOWN), ("nccl", [asks("nccl", "2.*"), pinned("nccl", "2")], UNKNOWN),
    ("cuda-version", [asks("cuda-version", "13.0.*")], UNKNOWN), ("numpy", [asks("numpy", "2.*")], UNPINNED),
    ("gcc", [asks("gcc", "14.*", sections=("build",), configs=LINUX), *GCC_PINS], OLDER),
])  # fmt: skip
def test_a_source_that_failed_makes_its_rows_unknown(name: str, facts: list[AnyFact], status: Status) -> None:
    left = [fact for fact in facts if fact.kind not in ("submodule", "ci-pin")]
    assert row(name, *left, troubles=SILENT).verdict.status is status
    outcome = SourceOutcome(source="recipe_pins", facts=(asks("sympy", ">=1", sections=("run",)),))
    assert [one.verdict.status for one in tabulate(target(), [outcome], names()).rows] == [UNKNOWN]


@pytest.mark.parametrize(
    ("name", "fact", "source", "status", "words"),
    [
        ("sympy", wheel("sympy", ">=1.13.3"), "recipe_pins", MISSING, "the recipe was not read"),
        ("fmt", wheel("fmt", "==11.0"), "submodules", MISSING, "submodules were not read"),
        ("sleef", asks("sleef", ">=3"), "submodules", UNPINNED, "upstream's submodules could not be read"),
        ("numpy", asks("numpy", "2.*"), "wheel_metadata", UNPINNED, "wheel_metadata could not be read"),
        ("ninja", asks("ninja", "*", sections=("build",)), "ci_pins", UNPINNED, "ci_pins could not be read"),
    ],
)
def test_a_source_that_was_not_read_is_not_one_without_the_row(
    name: str, fact: AnyFact, source: str, status: Status, words: str
) -> None:
    assert row(name, fact).verdict.status is status
    unread = row(name, fact, troubles={source: "no answer"}).verdict
    assert (unread.status, words in unread.sentence) == (UNKNOWN, True), unread.sentence
    unused = row(
        "ittapi", vendors("third_party/ittapi", "v3.2"), troubles={"recipe_pins": "no answer"}
    ).verdict
    assert unused.status is IN_STEP, "no recipe compiles it"
    others = {"pinning": "no answer", "channel": "no answer", "recipe_archs": "no answer"}
    assert row(name, fact, troubles=others).verdict.status is status, "these say nothing about the row"
    partly = row(
        "sleef",
        asks("sleef", ">=3"),
        vendors("third_party/fmt", "v1"),
        troubles={"submodules": "x.git: gone"},
    )
    assert partly.verdict.status is UNPINNED, "the source was read, though not all of it"
    for section, elsewhere in (("host", "wheel_metadata"), ("run", "ci_pins")):
        required = asks("cmake", "*", sections=(section,))
        assert row("cmake", required, troubles={elsewhere: "no answer"}).verdict.status is UNPINNED


def test_a_vendored_library_is_the_environments_where_the_recipe_asks_for_it() -> None:
    copy = vendors("third_party/sleef", "3.8")
    assert (row("sleef", copy, asks("sleef", "*")).use, row("sleef", copy).use) == ("system", "vendored")
    gtest = vendors("third_party/googletest", "v1")
    assert (row("gtest", gtest).use, row("gtest", gtest, configs=[""]).use) == ("unused", "listed")
    nested = vendors("third_party/kineto/libkineto/third_party/dynolog", "d2ffe0a")
    assert row("kineto/libkineto/dynolog", nested).vendored_only


def test_what_has_a_row_of_its_own() -> None:
    cuda = asks("cuda-version", "13.0.*", configs=CUDA130)
    followers = [
        asks(name, "*", configs=CUDA130) for name in ("libcufft-dev", "libcufile-dev", "cuda-cupti-dev")
    ]
    table = audit(cuda, *followers, CiPin(name="cufile", trouble="x"), ci_has("cupti", "13.0.85", "13.0"))
    assert [one.name for one in table.rows] == ["cuda-version"]
    table = audit(asks("libmagma", "<0.0a0", sections=("constraint",)), asks("libmagma-devel", "2.10.0.*"))
    assert [(one.name, one.verdict.status) for one in table.rows] == [("magma", UNPINNED)]
    assert (names().by_name("protobuf"), names().by_submodule("third_party/protobuf")) == (
        "protobuf",
        "libprotobuf",
    )


@pytest.mark.parametrize(
    ("tag", "ours"), [("3.20.3", "3.20.3"), ("21.12", "3.21.12"), ("25.3", "4.25.3"), ("35.1", "7.35.1")]
)
def test_protobufs_scheme(tag: str, ours: str) -> None:
    assert names().entries["libprotobuf"].release(tag) == ours


# ---- lists of CUDA architectures ------------------------------------------------------------------------------------


def ours(cuda: str, archs: str, config: str = "linux_64_cuda130", platform: str = "") -> RecipeArchs:
    holds = Scope(cuda=(cuda,), configs=(config,), platforms=(platform,) if platform else ())
    return RecipeArchs(name=f"CUDA {cuda}", archs=split_archs(archs), holds=holds)


def theirs(cuda: str, archs: str, platform: str = "") -> UpstreamArchs:
    holds = Scope(cuda=(cuda,), platforms=(platform,) if platform else ())
    return UpstreamArchs(name="gpu-architectures", archs=split_archs(archs), holds=holds)


def only(*facts: AnyFact) -> AuditRow:
    (found,) = audit(*facts).archs
    return found


@pytest.mark.parametrize(("upstream", "recipe", "status", "words"), [
    (["7.5 9.0 12.0+PTX"], "7.5;9.0;12.0+PTX", IN_STEP, "the same"),
    (["7.5;9.0;12.0+PTX"], "7.5;11.0;12.0+PTX", OLDER, "only the recipe has 11.0"),
    (["9.0"], "9.0;11.0", NEWER, "only the recipe has 11.0"),
    # upstream's nightly builds have PTX, the released wheels leave it out: no difference
    (["9.0;12.0", "9.0;12.0+PTX"], "9.0;12.0", IN_STEP, ""),
])  # fmt: skip
def test_lists_of_architectures(upstream: list[str], recipe: str, status: Status, words: str) -> None:
    found = only(*(theirs("13.0", archs) for archs in upstream), ours("13.0", recipe))
    assert found.verdict.status is status
    assert words in found.verdict.sentence


def test_a_new_python_is_to_be_kept_or_left_out() -> None:
    newest = asks("python", "3.15.* *_cp315")
    (row,) = audit(wheel("python", ">=3.10"), ci_has("python", "3.10, 3.11"), newest).rows
    assert row.verdict.status is NEWER
    assert row.verdict.todo.startswith(
        "keep this version if build and tests pass, else build for the other Pythons"
    )


def test_lists_are_compared_by_platform() -> None:
    found = only(
        theirs("13.0", "7.5;9.0", "linux-64"), theirs("13.0", "9.0;11.0", "linux-aarch64"),
        ours("13.0", "7.5;9.0", platform="linux-64"),
        ours("13.0", "8.7;9.0;11.0", config="linux_aarch64_cuda130", platform="linux-aarch64"),
    )  # fmt: skip
    assert found.verdict.sentence == "only the recipe has 8.7 [linux-aarch64]"
    found = only(
        theirs("13.0", "9.0", "linux-64"), ours("13.0", "9.0", platform="linux-64"),
        ours("13.0", "8.7", config="linux_aarch64_cuda130", platform="linux-aarch64"),
    )  # fmt: skip
    assert found.verdict.status is IN_STEP, "upstream has no list for the other platform"


def test_rows_of_cuda_versions() -> None:
    rows = audit(
        theirs("13.2", "9.0"), theirs("11.8", "6.0"), ours("13.0", "9.0"), theirs("13.0", "9.0")
    ).archs
    assert [(one.name, one.verdict.status) for one in rows] == [
        ("CUDA 11.8", IN_STEP),
        ("CUDA 13.0", IN_STEP),
        ("CUDA 13.2", OLDER),
    ]
    rows = audit(theirs("13.0", "9.0"), ours("13.0", "9.0"), ours("12.9", "9.0")).archs
    assert (rows[0].verdict.status, "no wheels" in rows[0].verdict.sentence) == (NEWER, True)
    elsewhere = structs.replace(theirs("13.0", "9.0"), where=Where(inferred="a later commit"))
    rows = audit(elsewhere, ours("13.0", "9.0"), ours("12.9", "9.0")).archs
    assert (rows[0].verdict.status, "another commit" in rows[0].verdict.sentence) == (UNKNOWN, True)
    rows = audit(elsewhere, theirs("13.2", "9.0"), ours("12.9", "9.0")).archs
    assert rows[0].verdict.status is UNKNOWN, "one list of another commit is enough"
    (unread,) = audit(ours("13.0", "9.0"), troubles={"upstream_archs": "no tree"}).archs
    assert (unread.verdict.status, "no tree" in unread.verdict.sentence) == (UNKNOWN, True)
    middle = audit(theirs("12.8", "9.0"), ours("13.0", "9.0")).archs[0]
    assert (middle.name, middle.verdict.status) == ("CUDA 12.8", IN_STEP)  # 12.9 is made here
    rows = audit(*(theirs(cuda, "9.0") for cuda in ("13.10", "13.2", "12.10"))).archs
    assert [(one.name, one.verdict.status) for one in rows] == [
        ("CUDA 12.10", IN_STEP), ("CUDA 13.2", OLDER), ("CUDA 13.10", OLDER),
    ]  # fmt: skip


def test_a_decision_takes_the_place_of_a_to_do_in_this_repository_only() -> None:
    outcomes = [
        SourceOutcome(source="wheel_metadata", facts=(wheel("cuda-bindings", ">=13.0.3"),)),
        SourceOutcome(source="recipe_pins", facts=(asks("numpy", "*"),)),
    ]
    ours, theirs = (
        next(
            one
            for one in tabulate(target(), outcomes, names(), foreign=foreign).rows
            if one.name == "cuda-bindings"
        )
        for foreign in (False, True)
    )
    assert ours.verdict.status is theirs.verdict.status is Status.MISSING
    assert ("Decided: " in ours.verdict.sentence, ours.verdict.todo) == (True, "")
    assert ("Decided: " in theirs.verdict.sentence, bool(theirs.verdict.todo)) == (False, True)
    outcomes.append(SourceOutcome(source="recipe_pins", facts=(asks("cuda-bindings", ">=13.0.3"),)))
    fitting = {one.name: one.verdict for one in tabulate(target(), outcomes, names(), foreign=False).rows}
    assert fitting["cuda-bindings"].status is IN_STEP
    assert "Decided: " not in fitting["cuda-bindings"].sentence, "there is nothing to decide"


def test_a_list_that_was_not_read_makes_its_row_unknown() -> None:
    holds = Scope(cuda=("13.0",), platforms=("linux-aarch64",))
    unread = UpstreamArchs(name="gpu-architectures", holds=holds, trouble="x.py: not a list")
    verdict = only(theirs("13.0", "9.0", "linux-64"), unread, ours("13.0", "9.0")).verdict
    assert (verdict.status, "x.py: not a list" in verdict.sentence) == (UNKNOWN, True)


@pytest.mark.parametrize(("text", "archs"), [
    ("9.0;12.0+PTX", ("9.0", "12.0+PTX")), ("10.0A 9.0+ptx", ("10.0a", "9.0+PTX")), ("10.00;9.0abc;90;sm_90", ()),
])  # fmt: skip
def test_only_whole_words_are_architectures(text: str, archs: tuple[str, ...]) -> None:
    assert split_archs(text) == archs


@pytest.mark.parametrize(("marker", "is_optional"), [
    ("extra == 'cuda'", True), ("python_version < '3.12' and 'cuda' in extra", True),
    ("platform_machine == 'extra'", False), ("", False),
])  # fmt: skip
def test_a_requirement_of_an_extra_is_optional(marker: str, is_optional: bool) -> None:
    assert Requirement(name="a", holds=Scope(marker=marker), where=Where()).is_optional == is_optional
