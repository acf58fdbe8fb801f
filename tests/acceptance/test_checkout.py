"""Commands that plan, list, compare and measure in a checkout; none of them builds."""

from __future__ import annotations

import functools
import json
import platform
import re
import sys
from collections.abc import Callable

import pytest
from pages import documented
from product import Place

#: A test's machine has one Python.
THIS_PYTHON = f" -p {sys.version_info.major}.{sys.version_info.minor}"
ONE_PYTHON = {"-p 3.12 -p 3.13": THIS_PYTHON}


def test_configs_are_listed_and_in_step(checkout: Place) -> None:
    listed = checkout.run(documented("python3 scripts/megabuild configs")).succeeded()
    for config in ("linux_64_cpu", "linux_64_cuda130", "linux_aarch64_cpu_wheel", "osx_arm64_cpu"):
        assert config in listed
    checkout.run(documented("python3 scripts/megabuild configs --check")).succeeded()


def test_an_unknown_config_gets_its_likely_names_and_the_command_that_lists_all(checkout: Place) -> None:
    said = checkout.run("python3 build-locally.py linux_64_cuda99").ended_with(3)
    assert "unknown config" in said
    guess = re.search(r"did you mean (\w+)", said)
    command = re.search(r"List all: (.+)", said)
    assert guess is not None
    assert command is not None
    assert guess[1] in checkout.run(command[1]).succeeded()
    assert command[1] == "python3 scripts/megabuild configs"


def test_configs_are_written_again_without_a_change(own_checkout: Place) -> None:
    own_checkout.run(documented("python3 scripts/megabuild configs --write")).succeeded()
    own_checkout.run(documented("git add -A .ci_support")).succeeded()
    assert own_checkout.run("git diff --cached --stat -- .ci_support").succeeded() == ""


@pytest.fixture(scope="module")
def planned(checkout: Place) -> Callable[[str], str]:
    """Return the text of a plan, whose command is run once."""
    return functools.cache(lambda command: checkout.run(command).text)


def test_a_plan_names_every_output_of_the_feedstock(planned: Callable[[str], str]) -> None:
    plan = planned(documented("python3 build-locally.py linux_64_cuda130 --plan"))
    for name in ("libtorch", "libtorch-cuda-linalg", "pytorch", "pytorch-gpu"):
        assert f"\n{name}-2.13.0-cuda130_mkl_" in plan
    for python in ("py310", "py311", "py312", "py313", "py314"):
        assert f"_{python}_" in plan


def test_a_plan_has_pytorch_s_own_tests_or_says_that_they_are_left_out(
    checkout: Place, planned: Callable[[str], str]
) -> None:
    command = documented("python3 build-locally.py linux_64_cuda130 --plan")
    plan = planned(command)
    assert re.search(r"PyTorch's own tests run for \d Pythons, about [\d.]+ CPU hours", plan)
    for python in ("py310", "py314"):
        assert f"\npytorch-tests-2.13.0-cuda130_mkl_{python}_" in plan
    without = checkout.run(f"{command} --no-upstream-tests").text
    assert "PyTorch's own tests are left out" in without
    assert "pytorch-tests" not in without


@pytest.mark.parametrize(
    "command",
    [
        documented("python3 build-locally.py linux_64_cpu_debian --plan"),
        documented("python3 build-locally.py linux_64_cpu_debian") + THIS_PYTHON + " --plan",
        pytest.param(
            documented("python3 build-locally.py linux_64_cpu_debian -p 3.12 -p 3.13", ONE_PYTHON)
            + " --plan",
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented("python3 build-locally.py linux_64_cuda124_debian --arch-list 9.0")
            + THIS_PYTHON
            + " --plan",
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented(
                "MEGABUILD_STORE=/srv/store MEGABUILD_STORE_WRITES=1 python3 build-locally.py linux_64_cpu_debian -p 3.12"
                " --pyg none",
                {"-p 3.12": THIS_PYTHON, "/srv/store": "$HOME"},
            )
            + " --plan",
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented(
                "MEGABUILD_STORE=/srv/store python3 build-locally.py linux_64_cpu_debian -p 3.13 --pyg none --plan",
                {"-p 3.13": THIS_PYTHON, "/srv/store": "$HOME"},
            ),
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented(
                "CCACHE_REMOTE_STORAGE='redis://cache.example.org' python3 build-locally.py linux_64_cpu_debian"
            )
            + " --plan",
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented(
                "CCACHE_REMOTE_STORAGE='redis://cache.example.org|read-only' python3 build-locally.py linux_64_cpu_debian"
            )
            + " --plan",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_debian_config_plans_pytorch_2_6(checkout: Place, command: str) -> None:
    assert "libtorch-2.6.0-" in checkout.run(command).text


@pytest.mark.skipif(platform.machine() != "x86_64", reason="an ARM machine uses packages for ARM")
def test_packages_for_arm_are_installed_on_arm_only(checkout: Place) -> None:
    channel = checkout.folder / "built" / "packages" / "linux_aarch64_cpu_debian"
    channel.mkdir(parents=True)
    name = "pytorch-2.6.0-cpu_generic_py313_h1_0.conda"
    record = {"path": f"linux-aarch64/{name}", "size": 1, "sha256": "0", "fingerprint": "0"}
    (channel / ".megabuild-packages.json").write_text(json.dumps({name: record}))
    told = checkout.run(
        "python3 scripts/megabuild env create ./arm pytorch --from linux_aarch64_cpu_debian -o built"
    ).ended_with(4)
    assert "linux_aarch64_cpu_debian: its packages are for linux-aarch64, not for linux-64" in told
    assert "hint: create the environment on a linux-aarch64 machine" in told


@pytest.mark.skipif(platform.machine() != "x86_64", reason="an ARM machine compiles for ARM natively")
def test_a_plan_for_arm_says_where_it_is_compiled_and_with_which_pythons(checkout: Place) -> None:
    command = documented("python3 build-locally.py linux_aarch64_cpu_debian --plan")
    plan = checkout.run(command)
    if "none of this machine's Pythons is among Debian's" in plan.text:
        pytest.skip("this machine has neither Python 3.11 nor 3.13")
    text = plan.succeeded()
    assert "builds PyTorch 2.6.0 for linux-aarch64, compiled on linux-64" in text
    assert re.search(r"\npytorch-2\.6\.0-cpu_generic_py31[13]_", text)
    assert (
        "Python 3.10, 3.12 left out: for linux-aarch64, Debian's 3.11 (bookworm), 3.13 (trixie) are used"
        in text
    )


@pytest.mark.parametrize(
    "command",
    [
        documented("python3 build-locally.py linux_64_cuda132_wheel -e spline_conv"),
        pytest.param(
            documented("python3 build-locally.py linux_64_cuda132_wheel -e scatter"), marks=pytest.mark.long
        ),
        pytest.param(
            documented(
                "python3 build-locally.py linux_64_cuda132_wheel --arch-list 12.0 -e scatter -e sparse"
            ),
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented(
                "python3 build-locally.py linux_64_cuda132_wheel --arch-list 12.0 -e scatter -e sparse --plan"
            ),
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented("python3 build-locally.py linux_64_cuda130_wheel --torch 2.14.1"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_wheel_config_finds_its_wheels_on_pypi(checkout: Place, command: str) -> None:
    answer = checkout.run(command.removesuffix(" --plan") + " --plan")
    assert "wheel_py3" in answer.text or "no wheel of PyTorch fits" in answer.text


@pytest.mark.parametrize(
    "command",
    [
        documented("python3 build-locally.py linux_64_cuda130", {}),
        pytest.param(
            documented("python3 build-locally.py linux_64_cuda130 --deadline 5h30m"), marks=pytest.mark.long
        ),
        pytest.param(
            documented("python3 build-locally.py linux_64_cuda130 --rehearse"), marks=pytest.mark.long
        ),
    ],
)
def test_builds_of_hours_are_planned(planned: Callable[[str], str], command: str) -> None:
    assert "libtorch-2.13.0-cuda130_mkl_" in planned(f"{command} --plan")


@pytest.mark.long  # half a minute each: every config is solved
@pytest.mark.parametrize(
    "command",
    [
        documented("python3 build-locally.py 'linux_64_cuda*' --provider conda-forge --plan"),
        documented("python3 build-locally.py 'linux_64_*' --provider conda-forge") + " --plan",
        documented("python3 build-locally.py 'linux_64_cuda*' --provider conda-forge --remove-trees -j 10")
        + " --plan",
        documented("python3 build-locally.py --all --plan"),
        documented("CPU_COUNT=10 scripts/build-all.sh") + " --plan",
    ],
)
def test_several_configs_are_planned_in_one_table(checkout: Place, command: str) -> None:
    assert "linux_64_cuda130_generic" in checkout.run(command, timeout=1800).text


def test_a_plan_says_what_is_built_side_by_side(checkout: Place) -> None:
    choices = "linux_64_cuda129 --rehearse --engine host --plan"
    together = checkout.run(
        f"python3 build-locally.py linux_64_cpu linux_64_cpu_generic {choices} -j 4"
    ).succeeded()
    expected = (
        "side by side, with 4 jobs together:\n  linux_64_cpu, then linux_64_cpu_generic\n  linux_64_cuda129\n"
    )
    assert expected in together
    command = f"python3 build-locally.py linux_64_cpu {choices}"
    assert "one config at a time: 1 job\n" in checkout.run(f"{command} -j 1").succeeded()
    assert "one config at a time: --one-by-one\n" in checkout.run(f"{command} -j 4 --one-by-one").succeeded()


@pytest.mark.parametrize(
    "command",
    [
        documented("python3 scripts/megabuild audit"),
        pytest.param(documented("python3 scripts/megabuild audit --package pyg-lib"), marks=pytest.mark.long),
    ],
)
def test_the_audit_has_upstream_recipe_and_conda_forge_side_by_side(checkout: Place, command: str) -> None:
    table = checkout.run(command).succeeded()
    assert "| package | upstream | recipe | conda-forge | status |" in table


@pytest.mark.long  # all packages' sources are read
def test_the_audit_of_all_packages_is_one_json_document(checkout: Place) -> None:
    document = checkout.run(documented("python3 scripts/megabuild audit --package all --json > audit.json"))
    document.succeeded()
    assert json.loads((checkout.folder / "audit.json").read_text())


@pytest.mark.parametrize(
    "command",
    [
        documented("python3 scripts/megabuild audit --offline --fail-on conflict"),
        pytest.param(
            documented("python3 scripts/megabuild audit --package all --offline --fail-on conflict"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            documented("python3 scripts/audit-pins --package all --offline --fail-on conflict"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_audit_in_ci_judges_or_says_what_it_could_not_read(checkout: Place, command: str) -> None:
    # 0: no conflict; 19: a source was never read on this machine, as behind a firewall
    answer = checkout.run(command)
    answer.ended_with(answer.exit_code)
    assert answer.exit_code in (0, 19)
    assert answer.exit_code == 0 or "not read" in answer.text


@pytest.mark.parametrize(
    ("command", "release"),
    [
        pytest.param(
            documented("python3 scripts/megabuild audit --release 2.14.0"), "2.14.0", marks=pytest.mark.long
        ),
        (documented("python3 scripts/megabuild audit --bump 2.14.1"), "2.14.1"),
        (documented("python3 scripts/megabuild audit --package pyg-lib --bump 0.9.0"), "0.9.0"),
        (documented("python3 scripts/megabuild audit --package pyg-lib --release 0.8.0"), "0.8.0"),
    ],
)
def test_another_release_is_compared(checkout: Place, command: str, release: str) -> None:
    answer = checkout.run(command)
    answer.ended_with(answer.exit_code)
    assert release in answer.text


@pytest.mark.parametrize(
    "command",
    [
        documented("python3 scripts/megabuild upload linux_64_cuda130"),
        documented("python3 scripts/megabuild upload linux_64_cuda130 --user me --apply"),
        documented(
            "ANACONDA_API_KEY=... python3 scripts/megabuild upload linux_64_cuda130 --user me --apply"
        ),
        documented(
            "ANACONDA_API_KEY=... python3 scripts/megabuild upload linux_64_cuda130 --user me --label main --apply"
        ),
        documented("python3 scripts/megabuild status linux_64_cpu_debian"),
        documented("python3 scripts/megabuild status linux_64_cpu --follow"),
        documented("python3 scripts/megabuild wheels linux_64_cpu_debian"),
        documented("python3 scripts/megabuild wheels linux_64_cpu_debian torch -p 3.12"),
        documented("python3 scripts/megabuild wheels linux_64_cpu_wheel torch_scatter"),
        documented("python3 scripts/megabuild wheels linux_64_cuda124_debian"),
        documented("python3 scripts/megabuild wheels linux_aarch64_cpu_wheel"),
        documented("python3 scripts/megabuild env create ./env pytorch_scatter --from linux_64_cpu_wheel"),
        documented(
            "python3 scripts/megabuild env create ./env pytorch-gpu pytorch_sparse --from linux_64_cuda132_wheel -p 3.12"
        ),
        documented(
            "python3 scripts/megabuild env create ./env 'pytorch 2.13.*' ipython --from linux_64_cuda130 -c conda-forge"
        ),
    ],
)
def test_a_config_that_was_never_built_is_named_with_a_way_out(own_empty_output: Place, command: str) -> None:
    answer = own_empty_output.run(command)
    text = answer.ended_with(3)
    assert "error: " in text
    assert "hint: " in text


@pytest.fixture
def own_empty_output(checkout: Place) -> Place:
    """The shared checkout, in which nothing was built."""
    assert not list(checkout.folder.glob("output/packages/*"))
    return checkout


def test_follow_ends_where_nothing_runs(own_empty_output: Place) -> None:
    command = documented("python3 scripts/megabuild status --follow")
    assert "no run" in own_empty_output.run(command).succeeded()


def test_sizes_are_known_before_an_installation(checkout: Place) -> None:
    command = documented("python3 scripts/megabuild sizes torch==2.15.0 jax onnxruntime-gpu --python 3.12")
    text = checkout.run(command).succeeded()
    assert "to download" in text
    assert "nvidia-cudnn-cu13" in text


@pytest.mark.long  # ten seconds of resolving
def test_sizes_are_of_this_python_by_default(checkout: Place) -> None:
    example = documented("python3 scripts/megabuild sizes torch==2.13.0 onnxruntime-gpu")
    assert "onnxruntime-gpu" in checkout.run(example).succeeded()


@pytest.mark.parametrize(
    "command",
    [
        documented("python3 scripts/megabuild clean linux_64_cpu --kind tree --kind work"),
        documented("python3 scripts/megabuild clean linux_64_cpu --kind tree --kind work --apply"),
        documented("python3 scripts/megabuild clean --kind objects --apply"),
    ],
)
def test_clean_has_nothing_to_remove_in_a_new_checkout(checkout: Place, command: str) -> None:
    answer = checkout.run(command, MEGABUILD_CACHE=checkout.folder.parent / "empty-cache")
    answer.ended_with(answer.exit_code)
    assert answer.exit_code in (0, 3)


def test_the_swap_is_a_program_of_its_own(checkout: Place) -> None:
    for command in (
        documented("python recipe/swap/cmake_python_swap --help"),
        documented("python -m cmake_python_swap --help"),
    ):
        assert "restore" in checkout.run(command, PYTHONPATH=checkout.folder / "recipe" / "swap").succeeded()
