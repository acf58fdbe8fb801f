"""The command line that a run's page gives to do it again."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from command_line.build import build
from megabuild.configs.config import load
from megabuild.plan.options import Options
from megabuild.report.repeat import command

#: What a line need not say: places are told apart below, a deadline was that day's.
_ELSEWHERE = {"config", "root", "output", "cache", "own", "deadline"}


def test_every_choice_is_in_the_line_and_the_build_command_takes_it(repository: Path, tmp_path: Path) -> None:
    plain = Options(config=load(repository, "linux_64_cpu"), root=repository, output=repository / "output",
                    cache=tmp_path)  # fmt: skip
    assert command(plain) == "python3 build-locally.py linux_64_cpu"
    for field in fields(Options):
        if field.name in _ELSEWHERE:
            continue
        default = getattr(plain, field.name)
        value: Any = {bool: True, tuple: ("3.12",)}.get(
            type(default), 7 if field.name in ("memory", "cpu_count") else "2 x"
        )
        words = shlex.split(command(replace(plain, **{field.name: value})))
        assert words[:3] == ["python3", "build-locally.py", "linux_64_cpu"]
        assert len(words) > 3, field.name
        build.make_parser(click.Context(build)).parse_args(words[2:])


def test_another_feedstock_and_output_are_named(repository: Path, tmp_path: Path) -> None:
    options = Options(config=load(repository, "linux_64_cpu"), root=repository, output=tmp_path / "a b", own=False,
                      cache=tmp_path)  # fmt: skip
    assert shlex.split(command(options))[3:] == ["--root", str(repository), "--output", str(tmp_path / "a b")]
