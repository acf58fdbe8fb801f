"""Lists of CUDA architectures side by side."""

from __future__ import annotations

from audit_samples import audit

from pin_audit.archs import split
from pin_audit.constraints import AuditRow, Status
from pin_audit.facts import AnyFact, RecipeArchs, Scope, UpstreamArchs


def ours(
    cuda: str, archs: str, recipe: str = "pytorch", config: str = "linux_64_cuda130", platform: str = ""
) -> RecipeArchs:
    holds = Scope(cuda=(cuda,), configs=(config,), platforms=(platform,) if platform else ())
    return RecipeArchs(name=f"CUDA {cuda}", archs=split(archs), recipe=recipe, holds=holds)


def theirs(cuda: str, archs: str, platform: str = "") -> UpstreamArchs:
    holds = Scope(cuda=(cuda,), platforms=(platform,) if platform else ())
    return UpstreamArchs(name="gpu-architectures", archs=split(archs), holds=holds)


def only(*facts: AnyFact, package: str = "pytorch") -> AuditRow:
    (found,) = audit(*facts, package=package).archs
    return found


def test_the_same_lists_are_in_step_whatever_the_spelling() -> None:
    found = only(theirs("13.0", "7.5 9.0 12.0+PTX"), ours("13.0", "7.5;9.0;12.0+PTX"))
    assert (found.name, found.status, found.sentence) == (
        "CUDA 13.0",
        Status.IN_STEP,
        "the same architectures",
    )


def test_what_the_recipe_lacks_and_has_more_is_named() -> None:
    found = only(theirs("13.0", "7.5;9.0;12.0+PTX"), ours("13.0", "7.5;11.0;12.0+PTX"))
    assert found.status is Status.OLDER
    assert found.sentence == "9.0 is upstream's, not the recipe's; 11.0 is the recipe's, not upstream's"


def test_code_for_newer_gpus_is_a_difference() -> None:
    assert only(theirs("13.0", "9.0;12.0+PTX"), ours("13.0", "9.0;12.0")).sentence.startswith(
        "12.0+PTX is upstream's"
    )


def test_ptx_besides_is_no_difference() -> None:
    """Upstream's nightly builds have it, the released wheels leave it out."""
    wheel, ci = theirs("13.0", "9.0;12.0"), theirs("13.0", "9.0;12.0+PTX")
    for upstream in ([wheel], [ci], [wheel, ci]):
        assert only(*upstream, ours("13.0", "9.0;12.0+PTX")).status is Status.IN_STEP
    assert only(wheel, ci, ours("13.0", "9.0;12.0")).status is Status.IN_STEP


def test_having_more_alone_is_newer() -> None:
    assert only(theirs("13.0", "9.0"), ours("13.0", "9.0;11.0")).status is Status.NEWER


def test_platforms_are_compared_with_their_own_lists() -> None:
    found = only(
        theirs("13.0", "7.5;9.0", "linux-64"),
        theirs("13.0", "9.0;11.0", "linux-aarch64"),
        ours("13.0", "7.5;9.0", platform="linux-64"),
        ours("13.0", "8.7;9.0;11.0", config="linux_aarch64_cuda130", platform="linux-aarch64"),
    )
    assert found.sentence == "8.7 is the recipe's, not upstream's [linux-aarch64]"


def test_an_extension_that_leaves_some_out_is_named() -> None:
    found = only(theirs("12.9", "5.0;6.0"), ours("12.9", "5.0;6.0"), ours("12.9", "6.0", recipe="pyg-lib"))
    assert (found.status, found.sentence) == (
        Status.IN_STEP,
        "the same architectures; pyg-lib leaves out 5.0",
    )


def test_an_extensions_table_has_its_own_list_only() -> None:
    found = only(ours("12.9", "5.0"), ours("12.9", "6.0", recipe="pyg-lib"), package="pyg-lib")
    assert [one.recipe for one in found.facts if isinstance(one, RecipeArchs)] == ["pyg-lib"]


def test_rows_are_in_the_order_of_cuda_versions() -> None:
    rows = audit(
        theirs("13.2", "9.0"), theirs("11.8", "6.0"), ours("13.0", "9.0"), theirs("13.0", "9.0")
    ).archs
    assert [(row.name, row.status) for row in rows] == [
        ("CUDA 11.8", Status.IN_STEP),
        ("CUDA 13.0", Status.IN_STEP),
        ("CUDA 13.2", Status.OLDER),
    ]


def test_a_cuda_that_upstream_no_longer_ships_is_newer_here() -> None:
    rows = audit(theirs("13.0", "9.0"), ours("13.0", "9.0"), ours("12.9", "9.0")).archs
    assert (rows[0].status, rows[0].sentence) == (Status.NEWER, "upstream ships nothing for it")


def test_without_upstreams_lists_it_is_unknown() -> None:
    (found,) = audit(ours("13.0", "9.0"), troubles={"upstream_archs": "no tree"}).archs
    assert (found.status, found.sentence) == (Status.UNKNOWN, "upstream's lists were not read: no tree")


def test_a_list_that_was_not_read_is_no_missing_config() -> None:
    (found,) = audit(theirs("13.0", "9.0"), troubles={"recipe_archs": "build.sh computes it"}).archs
    assert (found.status, found.sentence) == (
        Status.UNKNOWN,
        "the recipe's list was not read: build.sh computes it",
    )


def test_what_upstream_says_of_all_cudas_stands_in_every_row() -> None:
    rule = UpstreamArchs(name="gpu-architectures", value="those of the PyTorch it is built against")
    rows = audit(rule, ours("12.9", "9.0"), ours("13.0", "9.0")).archs
    assert [row.sentence for row in rows] == ["upstream's are those of the PyTorch it is built against"] * 2


def test_a_list_is_split_whatever_stands_between() -> None:
    assert split("7.5;9.0a, 10.0  12.0+PTX") == ("7.5", "9.0a", "10.0", "12.0+PTX")
    assert split("none of these") == ()
