"""The status of a row: every status, with the reason it gives."""

from __future__ import annotations

import pytest
from audit_samples import CONFIGS, asks, audit, ci_has, has, pinned, row, switch, target, vendors, wheel
from msgspec import structs

from pin_audit.constraints import Status
from pin_audit.facts import AnyFact, CiPin, GlobalPin, SourceOutcome
from pin_audit.name_map import names
from pin_audit.table import tabulate

CUDA129, CUDA130 = ("linux_64_cuda129",), ("linux_64_cuda130", "linux_aarch64_cuda130")


def test_what_asks_for_the_same_is_in_step() -> None:
    found = row("sympy", wheel("sympy", ">=1.13.3"), asks("sympy", ">=1.13.3"))
    assert found.status is Status.IN_STEP


def test_asking_for_more_than_the_wheel_needs_is_in_step() -> None:
    assert row("sympy", wheel("sympy", ">=1.13.3"), asks("sympy", ">=1.14")).status is Status.IN_STEP


def test_no_version_for_both_wheel_and_recipe_is_a_conflict() -> None:
    found = row("sympy", wheel("sympy", "==1.13.1"), asks("sympy", ">=1.13.3"))
    assert found.status is Status.CONFLICT
    assert (
        found.sentence == "no version satisfies both: the wheel needs ==1.13.1, the recipe asks for >=1.13.3"
    )


def test_no_version_for_both_wheel_and_conda_forges_pin_is_a_conflict() -> None:
    found = row("numpy", wheel("numpy", ">=2.1"), asks("numpy", ">=2.1"), pinned("numpy", "1.26"))
    assert found.status is Status.CONFLICT
    assert "conda-forge pins 1.26" in found.sentence


def test_a_pin_in_host_that_conda_forge_does_not_share_is_a_conflict() -> None:
    found = row("pybind11-abi", asks("pybind11-abi", "11.*"), pinned("pybind11_abi", "4"))
    assert found.status is Status.CONFLICT


def test_a_migration_in_progress_counts_as_well() -> None:
    found = row(
        "pybind11-abi",
        asks("pybind11-abi", "11.*"),
        pinned("pybind11_abi", "4"),
        pinned("pybind11_abi", "11", migration="pybind11_abi11"),
    )
    assert found.status is not Status.CONFLICT


def test_a_pin_of_another_platform_does_not_count() -> None:
    ours = asks("mkl-devel", "2026.*", configs=("linux_64_cpu",))
    assert row("mkl", ours, pinned("mkl_devel", "2023", "osx-64", "osx-arm64")).status is Status.UNPINNED


def test_a_compiler_behind_conda_forges_is_older_and_no_conflict() -> None:
    found = row("gcc", asks("gcc", "14.*", sections=("build",)), pinned("c_compiler_version", "15"))
    assert found.status is Status.OLDER


def test_a_version_that_the_channel_does_not_have_yet_is_a_conflict() -> None:
    found = row("triton", asks("triton", "==3.7.1"), has("triton", "3.6.0"))
    assert found.status is Status.CONFLICT
    assert "nothing newer than 3.6.0" in found.sentence


def test_a_version_that_the_channel_left_behind_is_none() -> None:
    assert row("triton", asks("triton", "==3.7.1"), has("triton", "3.8.0")).status is Status.UNPINNED


def test_admitting_what_the_wheel_does_not_is_older() -> None:
    found = row("setuptools", wheel("setuptools", ">=77.0.3"), asks("setuptools", "<82"))
    assert found.status is Status.OLDER
    assert "<82 admits versions older than the wheel's >=77.0.3" in found.sentence


def test_a_bare_name_where_the_wheel_has_a_range_is_a_missing_pin() -> None:
    assert row("networkx", wheel("networkx", ">=2.5.1"), asks("networkx", "*")).status is Status.MISSING


def test_a_missing_upper_end_is_a_missing_pin() -> None:
    found = row("networkx", wheel("networkx", ">=2.5.1,<4"), asks("networkx", ">=2.5.1"))
    assert found.status is Status.MISSING
    assert "excludes" in found.sentence


def test_what_the_wheel_needs_and_the_recipe_leaves_out_is_a_missing_pin() -> None:
    found = row("cuda-bindings", wheel("cuda-toolkit", "==13.0.3"), wheel("cuda-bindings", ">=13.0.3,<14"))
    assert found.status is Status.MISSING
    assert "the recipe does not ask for it" in found.sentence


def test_what_an_extra_needs_may_be_left_out() -> None:
    found = row("opt_einsum", wheel("opt-einsum", ">=3.3", 'extra == "opt-einsum"'))
    assert found.status is Status.IN_STEP


def test_what_an_extra_needs_is_compared_where_the_recipe_asks_for_it() -> None:
    found = row("optree", wheel("optree", ">=0.13.0", 'extra == "optree"'), asks("optree", "<0.12"))
    assert found.status is Status.CONFLICT


def test_a_requirement_of_another_platform_is_not_held_against_the_recipe() -> None:
    found = row("colorama", wheel("colorama", ">=99", 'platform_system == "Windows"'), asks("colorama", "<1"))
    assert found.status is Status.UNPINNED


def test_the_wheels_cuda_libraries_count_for_configs_of_its_cuda_only() -> None:
    facts: list[AnyFact] = [
        wheel("cuda-toolkit", "==13.0.3"),
        wheel("nvidia-nccl-cu13", "==2.29.7"),
        asks("nccl", "2.*", configs=CUDA130),
    ]
    assert row("nccl", *facts, asks("nccl", "<2.29", configs=CUDA129)).status is Status.IN_STEP
    assert row("nccl", *facts, asks("nccl", "<2.29", configs=CUDA130)).status is Status.CONFLICT


def test_what_the_wheel_needs_for_another_cuda_is_not_asked_of_the_recipe() -> None:
    other = (wheel("nvidia-cuda-runtime-cu12", "==12.8.90"), wheel("nvidia-nvshmem-cu12", "==3.3.20"))
    assert row("libnvshmem", *other).status is Status.IN_STEP
    assert row("libnvshmem", *other, asks("libnvshmem3", "*", configs=CUDA130)).status is Status.UNPINNED


def test_a_library_of_the_cuda_toolkit_follows_its_version() -> None:
    found = row(
        "libcublas",
        wheel("nvidia-cublas", "==13.1.0.3"),
        wheel("cuda-toolkit", "==13.0.3"),
        asks("libcublas-dev", "13.*", configs=CUDA130),
        asks("cuda-version", "13.0.*", configs=CUDA130),
    )
    assert found.status is Status.IN_STEP
    assert found.sentence == "cuda-version decides its version"


def test_one_about_which_upstream_says_nothing_has_no_row_of_its_own() -> None:
    table = audit(asks("cuda-version", "13.0.*", configs=CUDA130), asks("libcufft-dev", "*", configs=CUDA130))
    assert [one.name for one in table.rows] == ["cuda-version"]
    assert {one.name for one in table.rows[0].facts} == {"cuda-version", "libcufft-dev"}


def test_what_upstream_vendors_is_newer_or_older_than_the_recipe() -> None:
    on = switch("USE_SYSTEM_SLEEF", "1")
    copy = vendors("third_party/sleef", "3.8-12-gabc1234", commit="abc1234" + "0" * 33)
    assert row("sleef", copy, on, asks("sleef", "<3.7")).status is Status.OLDER
    assert row("sleef", copy, on, asks("sleef", ">=3.9")).status is Status.NEWER
    assert row("sleef", copy, on, asks("sleef", "3.8.*")).status is Status.IN_STEP


def test_a_bare_name_is_judged_by_what_the_channel_would_give() -> None:
    copy = vendors("third_party/pybind11", "v2.13.6")
    ours = (copy, switch("USE_SYSTEM_PYBIND11", "1"), asks("pybind11", "*"))
    newer = row("pybind11", *ours, has("pybind11", "3.0.1"))
    assert newer.status is Status.NEWER
    assert newer.sentence == "upstream vendors v2.13.6; the recipe takes the newest, 3.0.1"
    assert row("pybind11", *ours, has("pybind11", "2.13.6")).status is Status.IN_STEP
    assert row("pybind11", *ours, has("pybind11", "2.12.0")).status is Status.OLDER
    assert row("pybind11", *ours).status is Status.UNKNOWN


def test_the_channels_newest_is_enough_for_a_range_that_upstream_builds_with() -> None:
    ours = (ci_has("packaging", ">=24.2"), asks("packaging", "*", sections=("host",)))
    assert row("packaging", *ours, has("packaging", "25.0")).status is Status.IN_STEP
    assert row("packaging", *ours, has("packaging", "23.0")).status is Status.MISSING
    assert row("packaging", *ours).status is Status.IN_STEP  # a build tool
    numpy = (ci_has("numpy", ">=2.2"), asks("numpy", "*", sections=("host",)))
    assert row("numpy", *numpy).status is Status.MISSING


def test_one_of_several_versions_that_upstream_ci_has_is_enough() -> None:
    tested = [
        ci_has("numpy", "1.26.2", python="3.12"),
        ci_has("numpy", "2.3.4", python="3.14"),
    ]
    assert row("numpy", *tested, asks("numpy", "2.*")).status is Status.IN_STEP
    assert row("numpy", *tested, asks("numpy", "3.*")).status is Status.NEWER


def test_upstreams_pin_for_another_cuda_is_not_held_against_a_config() -> None:
    found = row(
        "cudnn",
        ci_has("cudnn", "8.9.2", "11.8"),
        ci_has("cudnn", "9.20.0.48", "13.0"),
        asks("libcudnn-dev", "9.*", configs=CUDA130),
    )
    assert found.status is Status.IN_STEP


def test_what_upstream_has_for_another_cuda_alone_claims_nothing() -> None:
    ours = asks("libcudnn-dev", "9.*", configs=CUDA130)
    assert row("cudnn", ci_has("cudnn", "8.9.2", "11.8"), ours).status is Status.UNPINNED
    assert row("cudnn", ci_has("cudnn", "8.9.2", "13"), ours).status is Status.NEWER  # of all that begin so


def test_a_key_that_conda_forge_pins_and_the_recipe_does_not_is_missing() -> None:
    assert row("zlib", asks("zlib", "*"), pinned("zlib", "1")).status is Status.MISSING


def test_nobody_but_the_recipe_names_it() -> None:
    found = row("libuv", asks("libuv", "*"))
    assert (found.status, found.sentence) == (
        Status.UNPINNED,
        "upstream names no version, the recipe asks for any version",
    )


def test_a_source_that_failed_makes_a_row_unknown_and_says_so() -> None:
    silent = {"submodules": "github.com does not answer"}
    found = row("pybind11", asks("pybind11", "*"), switch("USE_SYSTEM_PYBIND11", "1"), troubles=silent)
    assert (found.status, found.sentence) == (Status.UNKNOWN, "upstream's submodules were not read")


def test_only_what_upstream_s_ci_is_read_for_is_unknown_without_it() -> None:
    silent = {"ci_pins": "github.com does not answer"}
    found = row("nccl", asks("nccl", "2.*"), troubles=silent)
    assert (found.status, found.sentence) == (Status.UNKNOWN, "upstream's CI was not read")
    assert row("cuda-version", asks("cuda-version", "13.0.*"), troubles=silent).status is Status.UNKNOWN
    assert row("numpy", asks("numpy", "2.*"), troubles=silent).status is Status.UNPINNED


def test_a_rule_that_no_longer_fits_is_the_rows_reason() -> None:
    broken = CiPin(name="cudss", trouble="install_cudss.sh is not there")
    found = row("libcudss", broken, asks("libcudss-dev", "<0.8", configs=CUDA130))
    assert (found.status, found.sentence) == (Status.UNKNOWN, "install_cudss.sh is not there")


def test_a_vendored_library_is_marked_by_the_switch_that_says_so() -> None:
    copy = vendors("third_party/sleef", "3.8")
    system = row("sleef", copy, switch("USE_SYSTEM_SLEEF", "1"))
    assert (system.use, system.why) == ("system", "USE_SYSTEM_SLEEF=1, recipe/build_env.sh:30")
    assert row("sleef", copy, switch("USE_SYSTEM_SLEEF", "0")).use == "vendored"
    assert row("sleef", copy).use == "vendored"


def test_a_switch_may_mean_the_environments_when_it_is_off() -> None:
    copy = vendors("third_party/protobuf", "v3.13.0")
    assert row("libprotobuf", copy, switch("BUILD_CUSTOM_PROTOBUF", "OFF")).use == "system"
    assert row("libprotobuf", copy, switch("BUILD_CUSTOM_PROTOBUF", "ON")).use == "vendored"


def test_what_is_not_compiled_is_in_step_and_says_why() -> None:
    found = row("ittapi", vendors("third_party/ittapi", "v3.2"), switch("USE_ITT", "0"))
    assert (found.use, found.status) == ("unused", Status.IN_STEP)
    assert found.sentence == "not compiled here: USE_ITT=0, recipe/build_env.sh:30"


def test_used_in_one_config_counts_before_unused_in_others() -> None:
    copy = vendors("third_party/cutlass", "v4.2.1")
    off, on = switch("USE_CUDA", "0", CONFIGS[:1]), switch("USE_CUDA", "1", CONFIGS[1:2])
    assert row("cutlass", copy, off, on).use == "vendored"


def test_a_submodule_that_no_mapping_knows_has_a_row_under_its_path() -> None:
    found = row("newlib", vendors("third_party/newlib", "v1.0"))
    assert (found.use, found.vendored_only, found.status) == ("vendored", True, Status.IN_STEP)
    nested = vendors("third_party/kineto/libkineto/third_party/dynolog", "d2ffe0a")
    assert row("kineto/libkineto/dynolog", nested).vendored_only


def test_excluding_a_package_is_no_constraint_on_its_version() -> None:
    table = audit(asks("libmagma", "<0.0a0", sections=("constraint",)), asks("libmagma-devel", "2.10.0.*"))
    assert [(one.name, one.status) for one in table.rows] == [("magma", Status.UNPINNED)]


def test_several_builds_of_one_version_are_one_sentence() -> None:
    builds = [
        asks("pytorch", f"==2.13.0 {flavour}_*", configs=(config,))
        for flavour, config in (("cpu", "linux_64_cpu"), ("cuda129", "linux_64_cuda129"))
    ]
    found = row("pytorch", *builds, ci_has("pytorch", "2.1.0"))
    assert found.sentence == "upstream's CI has 2.1.0, the recipe asks for ==2.13.0"


def test_a_source_that_was_not_asked_leaves_its_rows_unknown() -> None:
    found = tabulate(
        target(),
        [SourceOutcome(source="recipe_pins", facts=(asks("sympy", ">=1", sections=("run",)),))],
        names(),
    )
    assert [(one.status, one.sentence) for one in found.rows] == [
        (Status.UNKNOWN, "upstream's wheel was not read")
    ]


# ---- verdicts that were wrong, with the values of August to November 2026 -------------------------------------------

LINUX = ("linux_64_cpu", "linux_64_cuda129", "linux_64_cuda130", "linux_aarch64_cuda130")
UNREAD = {"ci_pins": "github.com: no answer", "submodules": "github.com: no answer"}


def gcc_pin(version: str, *cuda: str, migration: str = "") -> GlobalPin:
    pin = pinned("c_compiler_version", version, "linux-64", "linux-aarch64", migration=migration)
    return structs.replace(pin, holds=structs.replace(pin.holds, cuda=cuda))


def test_a_compiler_behind_conda_forges_is_older_where_upstream_is_silent() -> None:
    pins = (gcc_pin("15", "None"), gcc_pin("14", "12.9"), gcc_pin("15", "13.0", migration="cuda130"))
    ours = asks("gcc", "14.*", sections=("build",), configs=LINUX)
    found = row("gcc", ours, *pins, troubles=UNREAD)
    assert found.status is Status.OLDER
    assert "the recipe asks for 14.*, conda-forge pins 15 [" in found.sentence
    assert "cuda129" not in found.sentence  # there 14 is the pin
    assert row("gcc", asks("gcc", "14.*", sections=("build",), configs=CUDA129), *pins).status is not (
        Status.OLDER
    )


def test_what_is_in_step_with_conda_forge_stays_unknown_without_upstream() -> None:
    ours = (asks("nccl", "2.*"), pinned("nccl", "2"), switch("USE_SYSTEM_NCCL", "1"))
    found = row("nccl", *ours, troubles=UNREAD)
    assert (found.status, found.sentence) == (Status.UNKNOWN, "upstream's submodules were not read")


def test_protobufs_tags_are_counted_as_conda_forge_counts_them() -> None:
    off = switch("BUILD_CUSTOM_PROTOBUF", "OFF")
    copy = vendors("third_party/protobuf", "v21.12", commit="f0dc78d7e6e331b8c6bb2d5283e06aa26883ca7c")
    assert row("libprotobuf", copy, off, asks("libprotobuf", "3.21.12.*")).status is Status.IN_STEP
    found = row("libprotobuf", copy, off, asks("libprotobuf", "7.35.1.*"))
    assert found.status is Status.NEWER
    assert found.sentence == "upstream vendors v21.12 (3.21.12), the recipe asks for 7.35.1.*"
    before = vendors("third_party/protobuf", "v3.13.0", commit="d1eca4e4b421cd2997495c4b4e65cea6be4e9b8a")
    assert (
        "upstream vendors v3.13.0, " in row("libprotobuf", before, off, asks("libprotobuf", "7.*")).sentence
    )


@pytest.mark.parametrize(
    ("tag", "ours"),
    [("3.20.3", "3.20.3"), ("21.12", "3.21.12"), ("25.3", "4.25.3"), ("29.3", "5.29.3"), ("35.1", "7.35.1")],
)
def test_protobufs_scheme(tag: str, ours: str) -> None:
    assert names().entries["libprotobuf"].release(tag) == ours


def test_pythons_protobuf_is_counted_otherwise_and_is_another_row() -> None:
    assert names().by_ci("protobuf") == "protobuf"
    assert names().by_submodule("third_party/protobuf") == "libprotobuf"


def test_requires_python_and_tags_make_the_row_of_python() -> None:
    ours = [asks("python", f"3.{minor}.* *_cpython") for minor in range(10, 15)]
    tags = ci_has("python", "3.11, 3.12, 3.13, 3.14, 3.14t, 3.15, 3.15t")
    found = row("python", wheel("python", ">=3.11"), tags, *ours)  # 2.15.0
    assert found.status is Status.CONFLICT
    assert "the wheel needs >=3.11, the recipe asks for 3.10.*" in found.sentence
    tags = ci_has("python", "3.10, 3.11, 3.12, 3.13, 3.14, 3.14t")
    assert row("python", wheel("python", ">=3.10"), tags, *ours).status is Status.IN_STEP  # 2.13.0


def test_what_the_wheel_needs_for_a_newer_cuda_is_news() -> None:
    """2.15.0 is for CUDA 13.2, which no config here is for."""
    toolkit = wheel("cuda-toolkit", "==13.2.2")
    bindings = row("cuda-bindings", toolkit, wheel("cuda-bindings", "<14,>=13.2.0"))
    assert bindings.status is Status.MISSING
    assert "upstream's wheel is for CUDA 13.2, newer than any here" in bindings.sentence
    assert row("libnvshmem", toolkit, wheel("nvidia-nvshmem-cu13", "==3.6.5")).status is Status.MISSING
    ours = asks("cuda-version", "13.0.*", configs=CUDA130)
    assert row("cuda-version", toolkit, ours).status is Status.OLDER
    cudnn = (toolkit, wheel("nvidia-cudnn-cu13", "==9.24.0.43"), asks("libcudnn-dev", "9.*", configs=CUDA130))
    assert row("cudnn", *cudnn).status is Status.IN_STEP


def test_cuda_version_has_two_numbers_in_conda_forge() -> None:
    """As in the live feedstock's meta.yaml, whose wheel needs cuda-toolkit ==13.0.3."""
    toolkit = wheel("cuda-toolkit", "==13.0.3")
    assert (
        row("cuda-version", toolkit, asks("cuda-version", "13.0", configs=CUDA130)).status is Status.IN_STEP
    )
    assert (
        row("cuda-version", toolkit, asks("cuda-version", "12.9", configs=CUDA130)).status is Status.CONFLICT
    )


def test_a_build_tool_lacks_no_pin() -> None:
    tested = ci_has("packaging", "24.0")
    for newest in (has("packaging", "26.0"), None):
        facts: list[AnyFact] = [
            tested,
            asks("packaging", "*", sections=("host",)),
            *([newest] if newest else []),
        ]
        assert row("packaging", *facts).status is Status.IN_STEP
    old = row(
        "ninja", ci_has("ninja", "1.11.1.4"), asks("ninja", "*", sections=("build",)), has("ninja", "1.10")
    )
    assert old.status is Status.OLDER


def test_eigen_is_a_pin_of_upstreams_and_no_submodule() -> None:
    """third_party/eigen_pin.txt has 5.0.1."""
    found = row(
        "eigen", ci_has("eigen", "5.0.1"), asks("eigen", "*", sections=("host",)), has("eigen", "5.0.1")
    )
    assert (found.use, found.status) == ("", Status.IN_STEP)


def test_libraries_of_the_cuda_toolkit_have_no_row_of_their_own() -> None:
    table = audit(
        asks("cuda-version", "13.0.*", configs=CUDA130),
        asks("libcufile-dev", "*", configs=CUDA130),
        CiPin(name="cufile", trouble="install_cuda.sh has no line that fits"),
        asks("cuda-cupti-dev", "*", configs=CUDA130),
        ci_has("cupti", "13.0.85", "13.0"),
    )
    assert [one.name for one in table.rows] == ["cuda-version"]


def test_a_commit_without_a_tag_names_no_version() -> None:
    commit = "51a0103656eff6fc9bfd39a4597923c4b542c883"
    copy = structs.replace(vendors("third_party/XNNPACK", "51a0103", commit=commit), day="2024-12-02")
    assert copy.text == "51a0103, 2024-12-02"
    found = row(
        "xnnpack", copy, switch("USE_SYSTEM_XNNPACK", "1"), asks("xnnpack", "*"), has("xnnpack", "2024.8")
    )
    assert found.status is Status.UNPINNED
