"""Preflight checks: find in seconds what a build would run into after hours."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from groundwork import files, redact
from groundwork.errors import IntegrityError, OutOfMemoryError, OutOfSpaceError, PreflightError
from groundwork.machine import MemoryWatch, disk_free, disk_of, measure
from groundwork.network.client import why_unreachable
from groundwork.text import counted
from megabuild.cleaning import size_of
from megabuild.configs.render import PlannedPackage
from megabuild.engine.job import Job
from megabuild.engine.logs import LogFollower, ScriptLine
from megabuild.engine.supervisor import run_worker
from megabuild.isolation.base import Isolation
from megabuild.plan import stored, tree_reuse
from megabuild.plan.estimate import GB
from megabuild.plan.options import check_path
from megabuild.plan.plan import Plan
from megabuild.plan.solving import Solver
from megabuild.run.failure import Failure, excerpt
from megabuild.run.sandbox_paths import View

_SCRIPT = r"""
cat > check.cpp <<'EOF'
#include <iostream>
#include <vector>
int main() {
  std::vector<int> answers{42};
  std::cout << "::megabuild:: answer " << answers.front() << std::endl;
}
EOF
echo "::megabuild:: compiler $("${CXX:?no C++ compiler is set}" --version | head -n 1)"
$CXX ${CXXFLAGS:-} check.cpp -o check ${LDFLAGS:-}
./check
mkdir -p "$PREFIX/share/megabuild-check"
echo done > "$PREFIX/share/megabuild-check/done"
"""
#: Of the small program: the driver's recipe in a folder where no other one lies, and a folder of the build's.
_RECIPE, _FOLDER = "preflight/recipe.yaml", "tmp/preflight"
_COMPILERS = re.compile(r"(gcc|gxx|clang|clangxx|sysroot|macosx_deployment_target)_")
_ANSWER, _COMPILER = "::megabuild:: answer 42", "::megabuild:: compiler "
_SERVER_SECONDS = 15.0

Check = tuple[str, str]


def before_preparation(plan: Plan) -> Iterator[Check]:
    """Run what can be checked before anything is downloaded; raises as :func:`checks` does."""
    yield "disk", _check_disk(plan)
    if reached := reach_sources(plan):
        yield "source", reached


def checks(plan: Plan, isolation: Isolation) -> Iterator[Check]:
    """Run all checks that need no compiler, cheapest first; each gives its name and what it found.

    Raises MegabuildError: The first check that fails.
    """
    check_path(plan.options.state_inside(isolation))
    yield "path", str(plan.options.state)
    yield "disk", _check_disk(plan)
    yield "memory", _check_memory(plan)
    yield "source", _check_source(plan)
    isolation.check()
    yield "isolation", isolation.name
    # apart from packages that the run itself will make
    packages = [item.package for item in plan.items]
    solver = Solver(plan.environment, plan.options.config.platform, {package.name for package in packages})
    for package in packages:
        solver.built_with(package)
    yield "packages", f"{counted(solver.count, 'environment')} can be solved"


def _check_disk(plan: Plan) -> str:
    state, cache = plan.options.state, plan.options.cache
    kept = size_of(tree_reuse.kept(plan.staging_decision, state / "tree"))
    needed = max(plan.estimate.disk - (size_of(state) - kept), 0)
    needs = [(state, needed, "--output")]
    if first := plan.environment.to_make:  # downloads and what is packed of them
        needs.append((cache, first, "MEGABUILD_CACHE"))
        if disk_of(cache) == disk_of(state):
            needs = [(state, needed + first, "--output")]
    for folder, size, name in needs:
        if disk_free(folder) < size:
            remedy = f"free some space, or put {name} on another disk"
            if kept and folder == state:
                remedy += f", or remove {state}/tree*: a former compile, {kept / GB:.1f} GB"
            raise OutOfSpaceError(
                f"{folder}: {disk_free(folder) / GB:.1f} GB are free, about {size / GB:.1f} GB are needed",
                remedy,
            )
    return f"{disk_free(state) / GB:.0f} GB free, about {needs[0][1] / GB:.1f} GB needed"


def _check_memory(plan: Plan) -> str:
    machine, per_job = measure(), plan.estimate.memory_per_job
    if machine.memory < per_job:
        raise OutOfMemoryError(
            f"the largest compile takes about {per_job / GB:.1f} GB, this machine has {machine.memory / GB:.1f} GB",
            "build on a machine with more memory",
        )
    jobs = f"{counted(plan.jobs.count, 'compile job')} ({plan.jobs.reason})"
    heavy = f", heavy objects {plan.heavy_jobs} at a time" if 0 < plan.heavy_jobs < plan.jobs.count else ""
    return f"{machine.memory_free / GB:.1f} GB free, {jobs}{heavy}"


def reach_sources(plan: Plan) -> str:
    """Say where archives come from, once a server has answered for each that is needed and the engine has not kept."""
    answering: dict[str, None] = {}
    plan = stored.when_fetched(plan)
    reused = plan.staging_decision.decision == "reuse"
    sources = [source for package in plan.missing for source in package.archives]
    sources += [source for package in plan.missing for source in package.staging_archives if not reused]
    kept = {path.name.partition("_")[2] for path in (plan.options.state / "out/src_cache").glob("*_*")}
    for source in dict.fromkeys(sources):
        if any(url.rpartition("/")[2] in kept for url in source.urls):
            continue
        reasons = {url: why_unreachable(url, _SERVER_SECONDS) for url in source.urls}
        if all(reasons.values()):
            url, reason = next(iter(reasons.items()))
            raise PreflightError(
                f"the source {redact.address(url)} cannot be had: {reason}",
                "check the network, or name another address in the recipe",
            )
        hosts = (urlsplit(url).netloc.rpartition("@")[2] for url, reason in reasons.items() if not reason)
        answering |= dict.fromkeys(filter(None, hosts))
    return f"{', '.join(answering)} answers" if answering else ""


def _check_source(plan: Plan) -> str:
    options = plan.options
    variant = {**options.config.variant, **plan.overrides}
    if "torch_source" not in options.config.variant:
        return reach_sources(plan) or "in the recipe's folder"
    kind = next(iter(plan.overrides.get("torch_source", ())), options.config.variant["torch_source"][0])
    if kind == "official" and options.torch_source is None:
        digest = variant.get("torch_sha256", ("",))[0]
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise IntegrityError(
                f"{options.config.name} names no sha256 for the source of PyTorch {options.config.torch_version}",
                "add torch_sha256 to conda_build_config.yaml",
            )
        reached = reach_sources(plan)
        return f"official {options.config.torch_version}, sha256 {digest[:12]}…" + (
            reached and f", {reached}"
        )
    own = kind == "model" and options.torch_source is None
    folder = options.root / "rehearsal" / "model" if own else plan.environment.source
    if folder is None or not folder.is_dir() or not os.listdir(folder):
        raise PreflightError(
            f"there is no source tree at {folder}", "fetch it again: the provider's cache is incomplete"
        )
    return f"{kind} at {folder}"


def compilers(planned: Sequence[PlannedPackage]) -> list[str]:
    """Return what staging, or the first package, compiles C++ with; nothing where it does not."""
    tools = next((package.staging_build or package.build for package in planned if package.build), ())
    specs = [spec for spec in tools if _COMPILERS.match(spec)]
    return specs if any("xx_" in spec for spec in specs) else []


def check_toolchain(
    planned: Sequence[PlannedPackage],
    seen: View,
    template: Job,
    *,
    on_log: Callable[[ScriptLine], object],
    on_tick: Callable[[], None],
) -> str:
    """Compile and run a small program the way the build will compile; return the compiler's own name and version.

    It goes through everything the real build will go through: the isolation, its mounts, the channel, the engine, the
    activation of the compilers, which are those of the plan's staging, or of its first package. A missing mount or a
    compiler that cannot link shows here within seconds. ``template`` is the build's own job; what
    ``on_tick`` raises ends the check.

    Raises PreflightError: It does not work; the message shows what the compiler said.
    Raises OutOfSpaceError, OutOfMemoryError, BuildError: It is not the toolchain's fault.
    """
    recipe = {
        "package": {"name": "megabuild-check", "version": "1"},
        "build": {"number": 0, "script": [_SCRIPT]},
        "requirements": {"build": compilers(planned)},
    }
    files.write(seen.state / _RECIPE, json.dumps(recipe))  # JSON is YAML
    seen = replace(seen, mounts=[*seen.mounts, seen.mount(_RECIPE)])
    folder = seen.state / _FOLDER
    small = replace(
        template, recipe=f"{seen.state_inside}/{_RECIPE}", output_dir=f"{seen.state_inside}/{_FOLDER}/out",
        test=False, keep_build=True, variant_config=(), named=False,
    )  # fmt: skip
    lines, memory = list[str](), MemoryWatch()

    def tick(*, last: bool = False) -> None:
        for line in follower.poll(last=last):
            lines.append(line.text)
            on_log(line)
        memory.tick()
        on_tick()

    try:
        with LogFollower(folder) as follower:
            outcome = run_worker(seen, small, on_line=lines.append, on_tick=tick)
            tick(last=True)
        works = outcome.ok and _ANSWER in lines
        failure = Failure(
            outcome=outcome, lines=lines, what="the toolchain check", jobs=1, state=seen.state, short=memory.short()
        )  # fmt: skip
        if not works and (error := failure.of_resources()):
            raise error
    finally:
        for path in (folder, (seen.state / _RECIPE).parent):
            files.remove(path)
    if not works:
        shown = "\n".join([outcome.message.splitlines()[0], *excerpt(lines)])
        raise PreflightError(
            f"the toolchain cannot compile a small program: {shown}",
            "the build environment has no working C++ compiler: see the provider's notes in --plan; "
            "`megabuild clean --kind downloads --apply` has its packages unpacked again",
        )
    return next((line.removeprefix(_COMPILER) for line in lines if line.startswith(_COMPILER)), "")
