"""What a bump concerns beside requirements: version, sources, patches, generated files, text that names a version."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork import files, process
from megabuild.configs.config import CONFIG_FOLDER, RECIPES
from megabuild.configs.matrix import MATRIX_FILE, PROVIDERS
from pin_audit.bump.changes import CERTAIN, COMMAND, FOLLOWS, PERSON, Change, Kind, Said
from pin_audit.bump.recipe import Recipe
from pin_audit.bump.release import sha256_of, shown
from pin_audit.bump.scene import Scene
from pin_audit.facts import Submodule, TagCommit

_PATCH = re.compile(r"^\s*-\s+(\S+\.patch)\b")
_TOUCHED = re.compile(r"^\+\+\+ (?:b/)?([^\t\n]+)", re.MULTILINE)
_CONFIGS = "python scripts/megabuild configs --write"
#: What programs make, with the commands.
_WRITE = "python scripts/megabuild audit --write docs/dependencies"
_MADE = {
    "tests/data/rendered.json": "scripts/test tests/integration/test_render_*.py -k kept --renew-names",
    "tests/data/rendered_pyg.json": "scripts/test tests/integration/test_render_*.py -k kept --renew-names",
    "docs/dependencies.md": f"{_WRITE}.md",
    "docs/dependencies-2.14.1.md": f"{_WRITE}-2.14.1.md --release 2.14.1",
}
#: Where text speaks of what is built now; elsewhere versions are samples, or history.
_TEXT = ("*.md", "*.yaml", "*.yml", "*Containerfile", "*Dockerfile")
_HISTORY = ("CHANGELOG.md", "docs/lab/*", "scripts/pin_audit/releases/*", "*.patch", "*.lock",
            f"{CONFIG_FOLDER}/*")  # fmt: skip
_LONGEST = 1 << 20  # bytes of a file that is searched


def versions(scene: Scene) -> Iterator[Change]:
    """Yield the version itself, and build numbers, which begin anew."""
    main = scene.main
    if main.version is not None:
        yield from scene.assigned("version", main, main.version, Said(scene.new.version, "--bump"))
    for recipe in scene.recipes:
        if recipe.build is not None and recipe.build.value.isdecimal():
            said = Said("0", "a new version begins at 0")
            yield from scene.assigned("build number", recipe, recipe.build, said)


def hashes(scene: Scene) -> Iterator[Change]:
    """Yield the sha256 of each source archive whose address holds the version."""
    for recipe in scene.recipes:
        for source in recipe.sources:
            urls = [_filled(url, scene) for url in source.urls]
            if source.sha256 is not None and any(scene.new.version in url for url in urls):
                said = sha256_of(urls, scene.request)
                note = "" if said.value else f"it is what sha256sum says of {urls[0].rpartition('/')[2]}"
                yield from scene.assigned("sha256", recipe, source.sha256, said, note)


def _filled(url: str, scene: Scene) -> str:
    """Return an address for the new version; a base that is a key of the matrix stays a word."""
    url = re.sub(r"\$?\{\{\s*version\s*\}\}", scene.new.version, url)
    url = re.sub(r"\$?\{\{\s*name\b.*?\}\}", scene.main.name, url)
    return re.sub(r"\$?\{\{\s*(\w+)\s*\}\}", r"\1", url).replace(scene.old.version, scene.new.version)


def commits(scene: Scene) -> Iterator[Change]:
    """Yield the commits that recipes take from git: upstream's own, and those of its submodules."""
    ours = scene.request.target.repository
    tag = next(iter(scene.new.all(TagCommit)), None)
    known = {_plain(one.address): Said(one.commit, one.name) for one in scene.new.all(Submodule)}
    known[_plain(ours)] = Said(tag.value, shown(tag.where)) if tag else scene.new.commit
    for recipe in (*scene.recipes, *scene.others):
        for address, place in recipe.commits:
            if recipe in scene.others and _plain(address) not in known:
                continue
            # an expression: the repository that the archive was made from
            said = known.get(_plain(ours if "{{" in address else address), Said(""))
            said = said if said.value else Said("", f"what {scene.new.version} has was not read")
            yield from scene.assigned("commit", recipe, place, said)


def _plain(address: str) -> str:
    return re.sub(r"^\w+://|\.git/?$|/$", "", address).lower()


def patches(scene: Scene) -> Iterator[Change]:
    """Yield patches, which must apply to the new tree, and submodules that moved; those that a patch touches apart."""
    recipe, tree = scene.main, scene.request.local.tree
    found = list(_patches(recipe))
    touched: dict[str, set[str]] = {}
    was, now = ({one.name: one for one in release.all(Submodule)} for release in (scene.old, scene.new))
    moved = sorted(name for name in {*was, *now} if _has_moved(scene, was.get(name), now.get(name)))
    for number, name in found:
        path = (scene.root / recipe.file.name).parent / name
        text = (files.read_untrusted(path, below=scene.root) or b"").decode("utf-8", errors="replace")
        for file in _TOUCHED.findall(text):
            for module in (one for one in moved if file.startswith(f"{one}/")):
                touched.setdefault(module, set()).add(name)
        if tree is not None:
            kind, note = _tried(path, tree)
            yield Change("patch", kind, recipe.file.name, number, name, "", "--tree", note)
    if found and tree is None:
        listed = ", ".join(dict.fromkeys(name.rpartition("/")[2] for _, name in found))
        note = f"do they apply? --tree FOLDER tries: {listed}"
        yield Change("patches", PERSON, recipe.file.name, found[0][0], f"{len(found)} patches", "", "", note)
    for module in moved:
        if module in touched:
            note = f"{', '.join(sorted(touched[module]))} touches it"
            values = (_commit(was, module), _commit(now, module))
            yield Change("submodule", PERSON, recipe.file.name, found[0][0], *values, module, note)
    others = [
        f"{one} {_commit(was, one) or 'new'} -> {_commit(now, one) or 'gone'}"
        for one in moved
        if one not in touched
    ]
    if unknown := _of_unknown_commit(scene):
        others.append(f"not known of {', '.join(unknown)}")
    if others:
        count = f"{len(moved) - len(touched)} moved"
        yield Change(
            "submodules", FOLLOWS, recipe.file.name, None, count, "", "upstream's trees", "; ".join(others)
        )


def _of_unknown_commit(scene: Scene) -> list[str]:
    """Return the submodules whose commit is not known in one of the releases."""
    facts = (
        one for release in (scene.old, scene.new) for one in release.outcomes if one.source == "submodules"
    )
    return sorted(
        {one.name for outcome in facts for one in outcome.facts if one.trouble and one.name != "submodules"}
    )


def _has_moved(scene: Scene, was: Submodule | None, now: Submodule | None) -> bool:
    """Whether a submodule has another commit, or came or went: of committed facts, what is not there says nothing."""
    if was and now:
        return was.commit != now.commit
    return (scene.new if was else scene.old).complete("submodules")


def _commit(among: dict[str, Submodule], name: str) -> str:
    one = among.get(name)
    return (one.text or one.commit[:10]) if one else ""


def _patches(recipe: Recipe) -> Iterator[tuple[int, str]]:
    """Yield a recipe's patches with their lines, without those for another provider's tree."""
    for number, line in enumerate(recipe.file.lines, start=1):
        found = _PATCH.match(line)
        if found and not {*PROVIDERS[1:]} & {*Path(found[1]).parts}:
            yield number, found[1]


def _tried(patch: Path, tree: Path) -> tuple[Kind, str]:
    """Return whether a patch applies to a tree, or is in it already."""
    environ = {"PATH": os.environ.get("PATH", ""), "GIT_DIR": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def fits(*more: str) -> bool:
        argv = ["git", "apply", "--check", *more, str(patch.absolute())]
        return process.run(argv, timeout=60, environ=environ, folder=tree).returncode == 0

    if fits():
        return FOLLOWS, "applies"
    if fits("-C1"):  # as engines do: two lines of context on each side may differ
        return FOLLOWS, "applies where lines around it have changed"
    return PERSON, "is in the new tree: leave it out" if fits("--reverse") else "does not apply"


def generated(scene: Scene) -> Iterator[Change]:
    """Yield what programs make from the matrix and from the recipes."""
    root = scene.root
    if (root / CONFIG_FOLDER).is_dir():
        own = scene.matrix == MATRIX_FILE
        kind, command = (CERTAIN, _CONFIGS) if own else (COMMAND, "conda smithy rerender")
        yield Change("generated", kind, CONFIG_FOLDER, None, "", "", scene.matrix, command)
    for name, command in _MADE.items():
        if scene.matrix == MATRIX_FILE and (root / name).is_file():
            yield Change("generated", COMMAND, name, None, "", "", "the recipes", command)


def extensions(scene: Scene) -> Iterator[Change]:
    """Yield the recipes beside that take the version from the same key."""
    found = [
        (one.file.name, n)
        for one in scene.others
        for n, line in enumerate(one.file.lines, 1)
        if _takes(line, scene)
    ]
    if found:
        note = f"{len({file for file, _ in found})} recipes take it from {scene.key}: what they build is built anew"
        values = (scene.old.version, scene.new.version)
        yield Change("extensions", FOLLOWS, *found[0], *values, "the recipes", note)


def _takes(line: str, scene: Scene) -> bool:
    return bool(scene.key) and re.search(rf"\{{\{{[^}}]*\b{scene.key}\b", line) is not None


def mentions(scene: Scene, covered: Collection[tuple[str, int]]) -> Iterator[Change]:
    """Yield text that names the old version: somebody must see whether it speaks of what is built now."""
    old, new = scene.old.version, scene.new.version
    one, either = (
        re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, words))})(?![\w]|\.\d)")
        for words in ([old], [old, new])
    )
    samples, where = 0, set()
    generated = (f"{RECIPES}/{MATRIX_FILE}", *_MADE) if scene.matrix == MATRIX_FILE else ()
    for name in _tracked(scene.root):
        if any(fnmatchcase(name, pattern) for pattern in _HISTORY) or name in generated:
            continue
        content = files.read_untrusted(scene.root / name, below=scene.root) or b""
        lines = content[:_LONGEST].decode("utf-8", errors="replace").splitlines()
        pattern = either if name.endswith("README.md") else one  # where another release is an example
        numbers = [
            n for n, line in enumerate(lines, start=1) if pattern.search(line) and (name, n) not in covered
        ]
        if numbers and not name.startswith("tests/") and any(fnmatchcase(name, text) for text in _TEXT):
            note = f"in line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
            yield Change("text", PERSON, name, numbers[0], old, "", "", note)
        elif numbers:
            samples += len(numbers)
            where.add(name)
    if samples:
        note = (
            f"{samples} lines in {len(where)} files of code, tests and samples; what breaks, the tests show"
        )
        yield Change("text", FOLLOWS, min(where).partition("/")[0], None, old, "", "", note)


def _tracked(root: Path) -> list[str]:
    """Return the files of a repository that may name versions: those that git lists, or the recipe's."""
    argv = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "ls-files", "-z"]
    done = process.run(argv, timeout=60, folder=root)
    if done.returncode == 0:
        return sorted(filter(None, done.stdout.split("\0")))
    return sorted(str(path.relative_to(root)) for path in (root / "recipe").rglob("*") if path.is_file())
