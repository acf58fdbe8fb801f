"""The rule file: what is in it, and what is said about mistakes in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from megabuild.audit import rules
from megabuild.errors import AuditError

FORM = "{file: a.txt, read: file}"


def written(folder: Path, pins: str, *, cuda: str = "", archs: str = "") -> Path:
    """Write a rule file with these pins from line 6 on."""
    path = folder / "rules.yaml"
    other = f"  - name: a\n    forms: [{FORM}]\n"
    path.write_text(f"cuda_versions:\n{cuda or other}arch_lists:\n{archs or other[:-1]}\npins:\n{pins}")
    return path


def test_the_rule_file_covers_what_the_audit_promises() -> None:
    names = {rule.name for rule in rules.load().pins if "pytorch" in rule.packages}
    promised = {"cuda", "cudnn", "cupti", "cusparselt", "cudss", "nccl", "magma", "mkl", "triton", "numpy"}
    promised |= {"cmake", "ninja", "pybind11", "onednn", "xnnpack", "six"}
    assert promised <= names


def test_every_extension_has_rules_and_arch_lists() -> None:
    known = rules.load()
    for package in ("pyg-lib", "pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv"):
        assert any(package in rule.packages for rule in known.pins)
        assert any(package in rule.packages for rule in known.arch_lists)


def test_every_pattern_of_the_rule_file_can_give_a_value() -> None:
    known = rules.load()
    for rule in (*known.cuda_versions, *known.pins, *known.arch_lists):
        for form in rule.forms:
            pattern = getattr(form.reader, "pattern", None)
            shown = getattr(form.reader, "shown", "")
            assert pattern is None or shown or "value" in pattern.groupindex, f"line {form.line}"


@pytest.mark.parametrize(
    ("pins", "line", "what"),
    [
        ("  - nam: a\n", 8, "unknown key 'nam' in a rule"),
        ("  - name: a\n", 8, "a rule has no 'forms'"),
        ("  - name: a\n    forms: []\n", 9, "forms must be a list with at least one item"),
        ("  - name: a\n    forms:\n      - file: x\n", 10, "a form has no 'read'"),
        ("  - name: a\n    forms:\n      - file: x\n        read: magic\n", 11, "unknown reader 'magic'"),
        (
            "  - name: a\n    forms:\n      - file: x\n        read: lines\n",
            10,
            "this reader needs 'pattern'",
        ),
        (
            "  - name: a\n    forms:\n      - file: x\n        read: lines\n        pattern: '('\n",
            12,
            "pattern: '(' is no regular expression",
        ),
        (
            "  - name: a\n    forms:\n      - file: x\n        read: file\n        call: y\n",
            12,
            "the reader file has no option 'call'",
        ),
        ("  - name: a\n    forms:\n      - {file: x, read: file, since: 2.10}\n", 10, "since must be text"),
        (
            "  - name: a\n    forms:\n      - {file: x, read: file, until: new}\n",
            10,
            "until: 'new' is no version",
        ),
        (
            "  - name: a\n    forms:\n      - {file: 3, read: file}\n",
            10,
            "file must be text or a list of texts",
        ),
        ("  - name: a\n    forms:\n      - {file: x, read: file, per: gpu}\n", 10, "per: unknown 'gpu'"),
        (
            "  - name: a\n    forms:\n      - {file: x, read: shell}\n",
            10,
            "needs either 'variable' or 'call'",
        ),
        ("  - name: a\n    some: maybe\n    forms: [" + FORM + "]\n", 9, "some must be true or false"),
        ("  - name: a\n    name: b\n", 9, "found duplicate key"),
        ("  - [\n", 0, "rules.yaml:"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(tmp_path: Path, pins: str, line: int, what: str) -> None:
    path = written(tmp_path, pins)
    with pytest.raises(AuditError) as caught:
        rules.load(path)
    assert what in caught.value.message
    assert caught.value.message.startswith(f"{path}:{line}: " if line else f"{path}:")
    assert caught.value.remedy


def test_a_file_that_is_not_there_or_is_no_mapping_is_told(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="cannot be read"):
        rules.load(tmp_path / "none.yaml")
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with pytest.raises(AuditError, match="the file must be a mapping"):
        rules.load(empty)


def test_a_form_holds_from_its_first_version_up_to_the_one_that_dropped_it(tmp_path: Path) -> None:
    pins = '  - name: a\n    forms:\n      - {file: x, read: file, since: "2.7", until: "2.10"}\n'
    (rule,) = rules.load(written(tmp_path, pins)).pins
    (form,) = rule.forms
    versions = ("2.6.1", "2.7.0a0", "2.7.0", "2.9.1", "2.10.0rc1", "2.10.0", "v-unheard-of")
    assert [form.holds(version) for version in versions] == [False, True, True, True, False, False, True]


def test_only_a_version_between_two_forms_is_a_gap(tmp_path: Path) -> None:
    pins = (
        '  - name: a\n    forms:\n      - {file: x, read: file, until: "2.7"}\n'
        '      - {file: y, read: file, since: "2.9"}\n'
    )
    (rule,) = rules.load(written(tmp_path, pins)).pins
    assert [rule.between(version) for version in ("2.6.0", "2.7.0", "2.8.1", "2.9.0")] == [
        False,
        True,
        True,
        False,
    ]
