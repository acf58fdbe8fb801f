"""A workflow of GitHub Actions: the jobs of each config, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from megabuild.ci.settings import Job, Settings

Step: TypeAlias = dict[str, Any]

CHECKOUT = "actions/checkout@v6"
RESTORE, SAVE = "actions/cache/restore@v5", "actions/cache/save@v5"
UPLOAD, DOWNLOAD = "actions/upload-artifact@v6", "actions/download-artifact@v7"

# Below the runner's own folder: the actions take no path with "..", and a checkout empties the workspace.
_CACHE = "${{ runner.temp }}/megabuild"
_OBJECTS = f"{_CACHE}/objects"
_STORE = "${{ runner.temp }}/store"
_OF_A_FORK = "github.event.pull_request.head.repo.fork"
#: Days: between jobs for as long as somebody may run a failed one again; what people look at, for longer.
_BETWEEN_JOBS, _TO_LOOK_AT = 3, 14
_LOGS = "output/logs-*.zip\noutput/manifest.json\n"
_PACKAGES = "output/packages"
#: The build has its deadline from the environment, so that it stands in the file once.
_BUILD = 'python3 build-locally.py "$CONFIG" --deadline "$DEADLINE"'
_GOES_ON = """\
code=0
{build} || code=$?
case $code in
  0) echo "finished=true" >> "$GITHUB_OUTPUT" ;;
  28) echo "finished=false" >> "$GITHUB_OUTPUT" ;;  # the deadline: the next job goes on
  *) exit "$code" ;;
esac
"""
# Of a store that goes from job to job only what this one has built goes on: all of it came as artifacts already.
_NOTE = 'touch "$RUNNER_TEMP/fetched"\n'
_ONLY_NEW = 'find "$RUNNER_TEMP/store" -type f ! -newer "$RUNNER_TEMP/fetched" -delete\n'
_ENDS = """\
{build}
echo "finished=true" >> "$GITHUB_OUTPUT"
"""
# Ubuntu lets no program make a user namespace, which bubblewrap needs, before it is told to.
_BUBBLEWRAP = """\
sudo apt-get update
sudo apt-get install --yes --no-install-recommends bubblewrap mmdebstrap debian-archive-keyring
sudo sysctl --write kernel.apparmor_restrict_unprivileged_userns=0
"""


def workflow(settings: Settings) -> dict[str, Any]:
    """Return the whole workflow."""
    events: dict[str, Any] = {"workflow_dispatch": None}
    for event in settings.events:
        events[event] = {"branches": ["main"]} if event == "push" else None
    return {
        "name": "megabuild",
        "on": events,
        "permissions": {"contents": "read"},
        "concurrency": {
            "group": "${{ github.workflow }}-${{ github.ref }}",
            "cancel-in-progress": "${{ github.event_name == 'pull_request' }}",
        },
        "defaults": {"run": {"shell": "bash"}},  # with pipefail
        "env": {"DEADLINE": settings.deadline},
        "jobs": {name: job for one in settings.configs for name, job in _jobs(one, settings).items()},
    }


def _jobs(one: Job, settings: Settings) -> dict[str, Any]:
    """Return the jobs of a config: libtorch and its continuations, pytorch for further Pythons, and the rest."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", one.config.name)
    rest = _job(one, settings, _packages(one, settings))
    if not _compiles(one):
        return {f"{name}-packages": rest}
    parts = [f"{name}-libtorch", *(f"{name}-libtorch-{2 + n}" for n in range(one.continuations))]
    before = ["", *parts]
    jobs = {part: _libtorch(n + 1, before[n], one, settings) for n, part in enumerate(parts)}
    ready = " || ".join(f"needs.{part}.outputs.finished == 'true'" for part in parts)
    # A job that was skipped skips all that need it, also at second hand, but for those that ask for the outcome.
    needed = {"needs": parts, "if": f"${{{{ !cancelled() && ({ready}) }}}}"}
    if others := list(one.pythons[1:]):
        matrix = {"strategy": {"fail-fast": False, "matrix": {"python": others}}}
        jobs[f"{name}-pytorch"] = {**needed, **matrix, **_job(one, settings, _pytorch(one, settings))}
        succeeded = f"${{{{ !cancelled() && needs.{name}-pytorch.result == 'success' }}}}"
        needed = {"needs": [f"{name}-pytorch"], "if": succeeded}
    return {**jobs, f"{name}-packages": {**needed, **rest}}


def _job(one: Job, settings: Settings, steps: Sequence[Step]) -> dict[str, Any]:
    labels = list(one.runner)
    prepared: list[Step] = []
    if one.config.provider == "debian" and not settings.rehearse:
        prepared = [{"name": "Prepare the machine", "run": _BUBBLEWRAP}]
    # packages carry the date of the recipe's last change, which a clone without its history does not know
    checkout = {"uses": CHECKOUT, "with": {"fetch-depth": 0, "persist-credentials": False}}
    return {
        "runs-on": labels[0] if len(labels) == 1 else labels,
        "timeout-minutes": settings.timeout_minutes,
        "env": {"CONFIG": one.config.name},
        "steps": [checkout, *prepared, *steps],
    }


def _libtorch(number: int, before: str, one: Job, settings: Settings) -> dict[str, Any]:
    """Return the job that begins with libtorch, or goes on with it where the one ``before`` was not finished."""
    config, last = one.config.name, number > one.continuations
    objects, saved = f"{config}-objects", f"objects-{config}-${{{{ github.run_id }}}}"
    begin: Step
    if before:
        begin = _download("Go on with the objects compiled so far", objects, _OBJECTS)
    else:
        found = {"path": _OBJECTS, "key": saved, "restore-keys": f"objects-{config}-\n"}
        begin = {"name": "Fetch objects of an earlier run", "uses": RESTORE, "with": found}
    build = _build(settings, "--python", '"$PYTHON"', "--pyg", "none")
    script = (_ENDS if last else _GOES_ON).format(build=build)
    steps = [begin, _run("Build libtorch", script, settings, id="build", env={"PYTHON": one.pythons[0]})]
    finished = "steps.build.outputs.finished == 'true'"
    if not last:
        step = _upload("Pass on the objects", objects, _OBJECTS, may_be_empty=True)
        steps.append(_where("steps.build.outputs.finished == 'false'", step))
    if not settings.store or settings.forks:
        condition = f"{finished} && {_OF_A_FORK}" if settings.forks else finished
        steps.append(_where(condition, _store_upload("libtorch", config)))
    save = {"name": "Keep the objects for later runs", "uses": SAVE, "with": {"path": _OBJECTS, "key": saved}}
    steps += [_where(finished, save), _logs(f"libtorch-{number}", config)]
    needed = {"needs": before, "if": f"needs.{before}.outputs.finished == 'false'"} if before else {}
    outputs = {"finished": "${{ steps.build.outputs.finished }}"}
    return {**needed, "outputs": outputs, **_job(one, settings, steps)}


def _pytorch(one: Job, settings: Settings) -> list[Step]:
    config, python = one.config.name, "${{ matrix.python }}"
    script = _build(settings, "--python", '"$PYTHON"', "--pyg", "none") + "\n"
    build = _run("Build pytorch", script, settings, env={"PYTHON": python})
    logs = _logs(f"pytorch-{python}", config)
    if settings.store and not settings.forks:
        return [build, logs]
    condition = _OF_A_FORK if settings.forks else ""
    fetch = _store_download("libtorch", config)
    before = [fetch, {"name": "Note when it was fetched", "run": _NOTE}]
    after = [{"name": "Leave out what was fetched", "run": _ONLY_NEW}, _store_upload(python, config)]
    return [
        *(_where(condition, step) for step in before),
        build,
        *(_where(condition, step) for step in after),
        logs,
    ]


def _packages(one: Job, settings: Settings) -> list[Step]:
    config, chosen = one.config.name, list[str]()
    if set(one.pythons) != set(one.config.pythons):
        chosen = [word for python in one.pythons for word in ("--python", python)]
    script = _build(settings, *chosen, "--pyg", settings.pyg) + "\n"
    what = "Fetch all packages" if settings.pyg == "none" else "Build the rest"
    steps = [_run(what, script, settings)]
    if _compiles(one) and (not settings.store or settings.forks):
        steps.insert(0, _where(_OF_A_FORK if settings.forks else "", _store_download("*", config)))
    packages = {"name": f"{config}-packages", "path": _PACKAGES, "retention-days": _TO_LOOK_AT}
    return [*steps, {"name": "Packages", "uses": UPLOAD, "with": packages}, _logs("packages", config)]


def _compiles(one: Job) -> bool:
    """Return whether a config compiles libtorch; one that takes official wheels apart has nothing to share."""
    return one.config.provider != "wheel"


def _build(settings: Settings, *arguments: str) -> str:
    """Return the line that builds; the arguments are quoted already."""
    return " ".join([_BUILD, *["--rehearse"] * settings.rehearse, *arguments])


def _run(
    what: str, script: str, settings: Settings, *, id: str = "", env: Mapping[str, str] | None = None
) -> Step:
    """Return the step that builds, with the store in its environment and secrets in no other one's."""
    local = "format('{0}/store', runner.temp)"
    address = _STORE
    if settings.store:
        choice = f"{_OF_A_FORK} && {local} || {settings.store}" if settings.forks else settings.store
        address = f"${{{{ {choice} }}}}"
    there = {"MEGABUILD_CACHE": _CACHE, "MEGABUILD_STORE": address, "MEGABUILD_STORE_WRITES": "1"}
    for secret in settings.secrets:
        value = f"!{_OF_A_FORK} && secrets.{secret} || ''" if settings.forks else f"secrets.{secret}"
        there[secret] = f"${{{{ {value} }}}}"
    return {"name": what, **({"id": id} if id else {}), "env": {**there, **(env or {})}, "run": script}


def _store_upload(part: str, config: str) -> Step:
    return _upload("Pass on what is finished", f"{config}-store-{part}", _STORE)


def _store_download(part: str, config: str) -> Step:
    return _download("Fetch what is finished", f"{config}-store-{part}", _STORE)


def _download(what: str, name: str, path: str) -> Step:
    """Return the step that fetches an artifact, or all that match; by a pattern also where there is none."""
    return {"name": what, "uses": DOWNLOAD, "with": {"pattern": name, "merge-multiple": True, "path": path}}


def _upload(what: str, name: str, path: str, *, may_be_empty: bool = False) -> Step:
    """Return the step that passes a folder to other jobs, in place of what an attempt before this one has passed."""
    given: dict[str, Any] = {"name": name, "path": path, "retention-days": _BETWEEN_JOBS, "overwrite": True}
    # what is in there is compressed already
    given |= {"compression-level": 0, "if-no-files-found": "ignore" if may_be_empty else "error"}
    return {"name": what, "uses": UPLOAD, "with": given}


def _logs(part: str, config: str) -> Step:
    given = {"name": f"{config}-logs-{part}", "path": _LOGS, "retention-days": _TO_LOOK_AT, "overwrite": True}
    return _where("always()", {"name": "Logs and report", "uses": UPLOAD, "with": given})


def _where(condition: str, step: Step) -> Step:
    """Return a step that is left out unless a condition holds; without one, as it is."""
    name = {"name": step["name"]}
    return {**name, "if": condition, **step} if condition else step
