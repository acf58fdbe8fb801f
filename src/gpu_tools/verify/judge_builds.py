"""Judges packages with builds of a library for several CUDA versions, of which one is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cuda_code.judge import Judgement
from cuda_code.library_facts import LibraryFacts
from gpu_tools.verify.expectation import ModuleContext

#: A build for one version of CUDA among several in a package: ``libbitsandbytes_cuda128.so``.
_CUDA_IN_NAME = re.compile(r"_cuda(\d\d)(\d)(?=[_.])")


def cuda_of_name(path: str) -> str | None:
    """Return the CUDA version in a library's file name: ``12.8``; None if it names none."""
    match = _CUDA_IN_NAME.search(path.rpartition("/")[2])
    if match is None:
        return None
    return f"{match[1]}.{match[2]}"


def judge_builds(
    module: ModuleContext, by_path: Mapping[str, LibraryFacts], judgements: Mapping[str, Judgement]
) -> dict[str, Judgement]:
    """Judge a package with builds of a library for several CUDA versions, ``libx_cuda118.so``, of which one is loaded.

    If a CUDA version is expected, its build is judged. Otherwise one fitting build is enough. Return the judgements of
    the others.
    """
    builds: dict[str, dict[str, str]] = {}
    for path in by_path:
        cuda = cuda_of_name(path)
        if cuda:
            library = _CUDA_IN_NAME.sub("_cuda", path)
            builds.setdefault(library, {})[cuda] = path
    replaced: dict[str, Judgement] = {}
    for by_cuda in builds.values():
        if len(by_cuda) > 1:
            replaced |= _judge_other_builds(by_cuda, judgements, module.expected.cuda_version)
    return replaced


def _judge_other_builds(
    by_cuda: Mapping[str, str], judgements: Mapping[str, Judgement], wanted: str | None
) -> dict[str, Judgement]:
    """Return the judgements of builds of a library, by path, that the wanted CUDA version (None: any) does not load."""
    others: dict[str, Judgement] = {}
    if wanted in by_cuda:
        for cuda, path in by_cuda.items():
            if cuda != wanted:
                others[path] = Judgement(note=f"not judged: CUDA {wanted} loads the build for CUDA {wanted}")
        return others
    fitting = [cuda for cuda, path in by_cuda.items() if judgements[path].ok]
    if not fitting:
        return {}
    hint = "pass the CUDA of your torch with --accelerator cudaNNN"
    fit = f"the builds for CUDA {', '.join(fitting)} are as expected: {hint}"
    for cuda, path in by_cuda.items():
        if cuda not in fitting:
            others[path] = Judgement(note=f"{judgements[path].reason}; {fit}")
    return others
