"""Click's parameters pass values of the types of the options' fields, and docs/options.md lists them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import GenericAlias
from typing import get_args, get_type_hints

import click
import pytest
from calling import call

from command_line import running
from command_line.build_options import BuildOptions
from command_line.main import COMMANDS, load
from command_line.options import GroupedCommand
from command_line.run_command import Invocation
from conda_wheels import make_wheels, wheels_report
from groundwork.option_fields import OptionField, option_fields
from groundwork.result import Result
from megabuild.plan import source_date
from megabuild.plan.options import Options
from megabuild.plan.run_choices import RunChoices
from pin_audit import bump_command, command
from pin_audit.audit_options import AuditOptions

RENEW = "scripts/test tests/unit/test_cli_options.py --renew-options"
_PROGRAMS = {"build": "python3 build-locally.py", "install-pyg": "scripts/install-pyg"}
_HEAD = """# Options

Every command's options, made from the texts of `--help`. [Contributing](../CONTRIBUTING.md#change-something) says how
to renew this page.
"""


def commands() -> dict[str, click.Command]:
    """Return the commands with a function, by the words that users type after `megabuild`."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = load(name)
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        found |= {f"{name} {part}".strip(): command for part, command in parts.items()}
    return found


def passed_type(parameter: click.Parameter, default: object) -> object:
    """Return the type of the values that click passes for a parameter."""
    kind = parameter.type
    if isinstance(kind, click.Path):
        single: type = kind.type or str
    else:
        types = {"boolean": bool, "integer range": int, "float range": float, "choice": str, "text": str}
        single = types[kind.name]
    if parameter.multiple or parameter.nargs == -1:
        return GenericAlias(tuple, (single, ...))
    return single if parameter.required or default is not None else single | None


def returned_type(convert: Callable[..., object]) -> object:
    """Return the type of the values that a conversion returns; pathlib has no annotations."""
    if isinstance(convert, type):
        return convert
    return Path if convert is Path.absolute else get_type_hints(convert)["return"]


def without_none(hint: object) -> set[object]:
    """Return the alternatives of a type, except None."""
    return {*(get_args(hint) or [hint])} - {type(None)}


@pytest.mark.parametrize("command", commands().values(), ids=commands())
def test_fields_have_the_types_of_the_values_that_click_passes(command: click.Command) -> None:
    assert command.callback is not None
    taken = get_type_hints(command.callback)
    assert taken.pop("invocation", Invocation) is Invocation
    assert taken.pop("return").__name__ == "Result"
    (model,) = taken.values()
    defaults = command.make_context("program", [], resilient_parsing=True).params
    by_name = {parameter.name: parameter for parameter in command.params if parameter.name in defaults}
    of_model = list(option_fields(model))
    assert {field.name for field in of_model} == by_name.keys()
    for field in of_model:
        name, declared = field.name, field.declared
        if declared.convert is None:
            default = defaults[name]
            if declared.flags and not field.is_switch:
                default = declared.default
            assert field.annotation == passed_type(by_name[name], default), name
        else:
            made = returned_type(declared.convert)
            assert without_none(field.annotation) == without_none(made), name


def example_words(field: OptionField) -> list[str]:
    """Return words with which a user gives an option another value than its default."""
    flag = field.declared.flags[0]
    if field.is_switch:
        return [flag]
    others = [word for word in field.declared.choices if word != field.declared.default]
    return [flag, *(others or ["7"])[:1]]


def test_build_fills_its_model(
    invocation: Invocation, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: list[Options] = []
    monkeypatch.setattr(
        running, "run_configs", lambda requests, *_, **__: taken.extend(one.options() for one in requests)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    text = """linux_64_cuda129 linux_64_cuda130 -p 3.12 -p 3.13 --torch 2.14.1 --torch-source pytorch --rehearse
        --engine podman -j 3 --memory 2.5 --arch-list 9.0 --optimization 0 --upstream-tests -k --deadline 1h -o out
        --pyg source -e scatter --pyg-index index --pyg-sources sources"""
    words = text.split()
    for field in option_fields(RunChoices):
        if not {*field.declared.flags} & {*words}:
            words += example_words(field)
    call(invocation, "build", *words)
    first, second = taken
    assert second.deadline is not None
    assert (first.earlier, second.earlier, second.deadline.text) == ((), (first.config.name,), "1h")
    assert (second.config.name, second.config.torch_version) == ("linux_64_cuda130", "2.14.1")
    assert (second.root, second.output, second.own) == (repository, tmp_path / "out", True)
    assert (second.engine, second.memory, second.torch) == ("podman", 2_500_000_000, "2.14.1")
    assert (second.torch_source, second.cache) == (tmp_path / "pytorch", tmp_path / "cache")
    direct = {
        "rehearse": True, "pythons": ("3.12", "3.13"), "keep_going": True, "optimization": "0", "upstream_tests": True,
        "cpu_count": 3, "pyg": "source", "pyg_index": "index", "pyg_sources": "sources", "extensions": ("scatter",),
        "arch_list": "9.0",
    }  # fmt: skip
    assert {name: getattr(second, name) for name in direct} == direct
    unfilled = {field.name for field in fields(Options) if getattr(second, field.name) == field.default}
    assert unfilled == {"own", "pool"}
    options = [option for option in commands()["build"].params if isinstance(option, click.Option)]
    others = {option.name for option in options if not {*option.opts} & {*words}}
    of_command = {field.name for field in fields(BuildOptions)} - {"run", "configs", "output"}
    assert others == of_command | {"json", "version"}
    call(invocation, "build", "linux_64_cpu", "--torch", "2.13.0", "--rehearse")
    call(invocation, "build", "linux_64_cpu", "-k")
    assert (taken[2].engine, taken[2].memory, taken[2].torch) == (None, None, None)
    flags = [(options.rehearse, options.keep_going, options.upstream_tests) for options in taken[2:]]
    assert flags == [(True, False, None), (False, True, None)]


def test_a_pair_of_switches_is_yes_no_or_neither(
    invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Options] = []
    monkeypatch.setattr(
        running, "run_configs", lambda requests, *_, **__: taken.extend(one.options() for one in requests)
    )
    for words in ([], ["--upstream-tests"], ["--no-upstream-tests"]):
        call(invocation, "build", "linux_64_cpu", *words)
    assert [options.upstream_tests for options in taken] == [None, True, False]
    call(invocation, "build", "linux_64_cpu", "--upstream-tests", "--no-upstream-tests")
    assert taken[-1].upstream_tests is False, "the last one counts"


@pytest.mark.parametrize("is_installed", [False, True])
def test_wheels_are_dated_by_the_checkout_that_makes_them(
    is_installed: bool,
    invocation: Invocation,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    taken: list[make_wheels.Request] = []
    dated: list[Path] = []
    monkeypatch.setattr(make_wheels, "make", lambda request, _: taken.append(request))
    monkeypatch.setattr(wheels_report, "result", lambda *_: Result())

    def date(root: Path, _: Mapping[str, str]) -> int:
        dated.append(root)
        return 7

    monkeypatch.setattr(source_date, "source_date", date)
    monkeypatch.setattr("command_line.wheels.is_checkout", lambda: not is_installed)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    done = call(invocation, "wheels", "x", "torch", "-p", "3.12", "-o", str(tmp_path))
    assert done.exit_code == 0, done.output
    expected = make_wheels.Request(
        output=tmp_path, config="x", pythons=("3.12",), names=("torch",), cache=tmp_path / "cache", date=7
    )
    assert taken == [expected]
    assert dated == [tmp_path if is_installed else repository]


def test_audit_fills_its_model(
    invocation: Invocation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: list[tuple[str, AuditOptions, Path]] = []

    def take(name: str, options: AuditOptions, root: Path, **_: object) -> Result:
        taken.append((name, options, root))
        return Result()

    monkeypatch.setattr(command, "audit", partial(take, "audit"))
    monkeypatch.setattr(bump_command, "bump", partial(take, "bump"))
    page = tmp_path / "page.md"
    page.touch()
    call(
        invocation, "audit", "--package", "all", "--root", str(tmp_path), "--release", "2.14.1", "--upstream", "url",
        "--ref", "tag", "--tree", str(tmp_path), "--pinning", str(page), "--write", str(page), "--snapshot",
        "--fail-on", "conflict", "--offline", "--timeout", "5",
    )  # fmt: skip
    call(invocation, "audit", "--bump", "newest")
    expected = AuditOptions(
        package_words=("all",), release="2.14.1", upstream="url", ref="tag", tree=tmp_path, pinning=page, offline=True,
        timeout=5.0, write=page, fail_on="conflict", snapshot=True, root=tmp_path, every_row=True,
    )  # fmt: skip
    assert taken[0] == ("audit", expected, tmp_path)
    assert taken[1][:2] == ("bump", AuditOptions(bump="newest", every_row=True))


@pytest.mark.parametrize(
    ("command", "option"), [("audit", "--timeout"), ("install-pyg", "--jobs")], ids=["a float", "an integer"]
)
def test_a_number_below_the_smallest_one_is_refused(
    command: str, option: str, invocation: Invocation
) -> None:
    assert call(invocation, command, option, "0").exit_code == 2


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        ("verify", "PACKAGE... | ENVIRONMENT"),
        ("sizes", "ENVIRONMENT | PACKAGE | REQUIREMENT..."),
        ("slim", "ENVIRONMENT|PACKAGE"),
        ("wheels", "CONFIG"),
        ("upload", "CONFIG"),
        ("env create", "DIR"),
        ("env create env", "PACKAGE..."),
    ],
)
def test_a_command_about_something_refuses_to_be_about_nothing(
    command: str, argument: str, invocation: Invocation
) -> None:
    """In a script, an empty variable must not look like a success."""
    done = call(invocation, *command.split())
    assert done.exit_code == 2
    assert f"missing argument '{argument}'" in done.stderr


@pytest.mark.parametrize("option", ["audit --tree", "audit --root", "install-pyg --pyg-sources"])
def test_a_file_in_place_of_a_folder_is_refused(option: str, invocation: Invocation, tmp_path: Path) -> None:
    file = tmp_path / "pytorch-v2.13.0.tar.gz"
    file.touch()
    done = call(invocation, *option.split(), str(file))
    assert done.exit_code == 2
    assert option.rpartition(" ")[2] in done.stderr


def escape(text: str) -> str:
    """Return text on one line, with a backslash before signs that Markdown would not show."""
    return re.sub(r"[<*|]", r"\\\g<0>", " ".join(text.split()))


def describe(name: str, command: click.Command) -> Iterator[str]:
    """Yield the lines about a command: usage, help text, options by group, examples, notes."""
    program = _PROGRAMS.get(name, f"python3 scripts/megabuild {name}")
    context = click.Context(command)
    examples, _, notes = getattr(command, "examples", "").strip().partition("\n\n")
    yield from (f"## {name}", f"`{' '.join([program, *command.collect_usage_pieces(context)])}`", "")
    for paragraph in filter(str.strip, f"{command.help}\n\n{notes}".split("\n\n")):
        yield from (*textwrap.wrap(escape(paragraph), 120), "")
    yield from ("| option | effect |", "|---|---|")
    group = ""
    for option in command.params:
        if not isinstance(option, click.Option) or option.name == "version":
            continue
        if group != (group := getattr(option, "group", "")) and isinstance(command, GroupedCommand):
            yield f"| **{group}** | |"
        names, effect = map(escape, option.get_help_record(context) or ())
        yield f"| `{names}` | {effect} |"
    if examples:
        commented = re.sub(r"(?m)^(.*?\S  +)(?=\S)", r"\1# ", examples).format(prog=program)
        yield from ("", "```console", *(f"$ {line}" for line in commented.splitlines()), "```")
    yield ""


def test_the_page_of_options_is_in_step(repository: Path, request: pytest.FixtureRequest) -> None:
    page = repository / "docs" / "options.md"
    lines = [line for name, described in commands().items() for line in describe(name, described)]
    text = "\n".join([_HEAD, *lines])
    if request.config.getoption("--renew-options"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text, f"run: {RENEW}"
