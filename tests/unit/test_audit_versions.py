"""Version logic: what constraints of conda and of PEP 440 have in common."""

from __future__ import annotations

import pytest

from pin_audit.versions import Position, Spec, common, described, pin, side, within


@pytest.mark.parametrize(
    ("one", "other", "possible"),
    [
        (Spec("~=2.2"), Spec(">=3"), False),
        (Spec("2.28.*"), Spec(">2.28.5"), True),
        (Spec(">=2.0,<2.0.1"), Spec("!=2.0"), True),
        (Spec("==1.13.1"), Spec("!=1.13.1"), False),
        (Spec("3.* *_netlib"), Spec("3.9.* *mkl"), True),
        (Spec("20260526.*"), Spec("20260527.*"), False),
        (Spec("*"), Spec("==1.0rc1"), True),
        (Spec(">=1.10"), Spec("<1.9"), False),
    ],
)
def test_two_constraints_have_a_version_in_common_or_not(one: Spec, other: Spec, possible: bool) -> None:
    found = common([one, other])
    assert (found is not None) is possible
    if found is not None:
        assert one.admits(found)
        assert other.admits(found)


def test_a_version_that_is_left_out_counts() -> None:
    assert side(Spec("<2|>3"), "2.5") is Position.MIXED
    assert not within(Spec("2.*"), Spec("!=2.5"))
    assert within(Spec("==1.2"), Spec("===1.2"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v2.1.0-705-ga6bfc23", "2.1.0"),
        ("4dfe081", ""),
        ("12345b67", ""),
        ("release-1.12.1-3-g1234567", "1.12.1"),
        ("boost_1_80_0", "1.80.0"),
        ("v2.29.7-1", "2.29.7"),
        ("v1.0.0-rc1-5-gabcdef1", "1.0.0rc1"),
        ("20260526.0", "20260526.0"),
        ("20260526", "20260526"),
        ("", ""),
    ],
)
def test_the_version_is_taken_out_of_a_description(text: str, expected: str) -> None:
    assert described(text) == expected


def test_a_value_of_the_matrix_is_a_prefix() -> None:
    assert pin("2").text == "2.*"
    assert pin("3.9.* *netlib").text == "3.9.* *netlib"
    assert pin("7.35.1").admits("7.35.1.2")
    assert pin("1!2.0").admits("1!2.0.1")
    assert Spec("==13.0.*").admits("13.0.3"), "as PEP 440 writes a prefix"
    assert not pin("7.35.1").admits("7.36.0")


def test_what_means_nothing_is_not_readable_and_admits_nothing() -> None:
    for spec in (Spec(">=bogus!!"), Spec(">>1"), Spec("@ https://example.org/x.whl")):
        assert not spec.readable
        assert not spec.admits("1.0")
