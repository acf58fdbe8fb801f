"""The files of an environment, their owners, and installers' lists of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from small_files import write

from gpu_tools import contents, file_lists
from groundwork.errors import IntegrityError
from groundwork.wheel_file import recorded

SITE = "lib/python3.12/site-packages"


def fill(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        write(root / name, text)
    return root


def conda(name: str, *files: str) -> str:
    return json.dumps({"name": name, "version": "1", "files": files})


# ------------------------------------------------------------------------------------------------------- environments


def test_files_belong_to_the_package_that_conda_names_and_byte_code_to_its_source_s(tmp_path: Path) -> None:
    """Conda's package has the RECORD of the wheel that it was made of, under another name."""
    code = f"{SITE}/torch/__pycache__"
    root = fill(
        tmp_path,
        {
            f"{SITE}/torch/a.py": "", f"{SITE}/own.py": "", f"{SITE}/free.py": "", f"{code}/a.cpython-312.pyc": "",
            f"{SITE}/__pycache__/free.cpython-312.pyc": "",
            f"{SITE}/torch-1.dist-info/RECORD": "torch/a.py,,\n",
            f"{SITE}/own-1.dist-info/RECORD": "own.py,,\n",
            "conda-meta/pytorch-1-0.json": conda("pytorch", f"{SITE}/torch/a.py", "lib/gone.so"),
        },
    )  # fmt: skip
    owners = contents.scan(root, name="x").owners
    assert {path: owner for path, owner in owners.items() if path.endswith((".py", ".pyc"))} == {
        f"{SITE}/torch/a.py": "pytorch", f"{SITE}/own.py": "own", f"{code}/a.cpython-312.pyc": "pytorch",
    }  # fmt: skip
    assert "lib/gone.so" not in owners


def test_links_out_of_an_environment_are_told_from_those_inside(tmp_path: Path) -> None:
    root = fill(
        tmp_path / "env", {"lib/a": "x", "lib/a.json": "", "conda-meta/a.json": conda("a", "b", "c", "d")}
    )
    fill(tmp_path / "env2", {"a": "x"})
    for name, target in {"b": "lib/a", "c": "../env2/a", "d": "gone", "e": "../env2/a"}.items():
        (root / name).symlink_to(target)
    (root / SITE).mkdir(parents=True)
    (root / SITE / "package").symlink_to(tmp_path / "env2")
    found = contents.scan(root, name="x")
    whole = f"{SITE}/package"
    assert found.outside == {"c": str(tmp_path / "env2/a"), whole: str(tmp_path / "env2")}
    assert found.links == {"b": "lib/a", "c": "../env2/a", "d": "gone", whole: str(tmp_path / "env2")}
    assert (found.read("b"), found.read("d"), found.size_of("b")) == (b"x", b"", 0)
    assert (found.begins_with("lib/a", b"x"), found.begins_with("b", b"x")) == (True, False)


# -------------------------------------------------------------------------------------------------------------- lists


def test_lists_of_wheels_and_of_conda_are_found_wherever_installers_put_them(tmp_path: Path) -> None:
    names = [
        "a-1.dist-info/RECORD", "site-packages/b-1.dist-info/RECORD", f"{SITE}/c-1.dist-info/RECORD",
        "conda-meta/d.json", "conda-meta/e.json", "info/paths.json",
    ]  # fmt: skip
    fill(tmp_path, dict.fromkeys([*names, "conda-meta/history", f"{SITE}/d-1.dist-info/METADATA"], ""))
    found = [path.relative_to(tmp_path).as_posix() for path in file_lists.find_lists(tmp_path)]
    assert found == names, "conda's after those of wheels, so that its names count"


@pytest.mark.parametrize(
    ("listed", "path"),
    [
        ("a/b.py", f"{SITE}/a/b.py"), ("../../../bin/tool", "bin/tool"), ("../../../../outside", ""),
        ("../../../..", ""), ("../../../..data/x", "..data/x"), ("/elsewhere/x", ""), ("TOP/bin/x", "bin/x"),
        ("REAL/bin/x", "bin/x"),
    ],
)  # fmt: skip
def test_entries_of_a_record_are_paths_in_the_environment(listed: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "top").symlink_to("real")
    listed = listed.replace("TOP", str(tmp_path / "top")).replace("REAL", str(tmp_path / "real"))
    assert file_lists._locate(tmp_path / "top", f"{SITE}/a-1.dist-info/RECORD", listed) == path


def test_a_record_s_folder_has_the_name_and_the_version(tmp_path: Path) -> None:
    root = fill(
        tmp_path,
        {
            "My.Pkg-1.0-rc1.dist-info/RECORD": "a.py,,\n../x,,\n\n",
            "My.Pkg-1.0-rc1.dist-info/METADATA": "Requires-Dist: Other.Thing>=1; extra == 'a'\nRequires-Dist: b\n\nt",
        },
    )
    listed = file_lists.read_list(root, root / "My.Pkg-1.0-rc1.dist-info/RECORD")
    assert (listed.owner, listed.version, listed.files) == ("my-pkg", "1.0-rc1", ("a.py",))
    assert listed.required_names == {"other-thing", "b"}
    assert not listed.is_condas


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_corrected_record_has_new_hashes_and_lacks_removed_files(ending: str, tmp_path: Path) -> None:
    new = write(tmp_path / "new", "content")
    digest = recorded(sha256(b"content").digest())
    name = "caf\udce9.py"  # no UTF-8
    rows = [
        "a.py,sha256=old,1",
        "gone.py,sha256=old,1",
        "code.pyc,,",
        f"{name},sha256=old,1",
        '"b, c.py",sha256=x,2',
    ]
    record = tmp_path / "a-1.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_bytes("".join(f"{row}{ending}" for row in rows).encode(errors="surrogateescape"))
    path = "a-1.dist-info/RECORD"
    changed = {"a.py": new, "code.pyc": new, name: new}
    text = file_lists.correct_list(record, path, {"gone.py"}, changed)
    expected = [f"a.py,{digest},7", "code.pyc,,", f"{name},{digest},7", '"b, c.py",sha256=x,2']
    assert text == "".join(f"{row}{ending}" for row in expected)
    assert file_lists.correct_list(record, path, {"other.py"}, {"other": new}) is None


@pytest.mark.parametrize("path", ["conda-meta/a.json", "info/paths.json"])
def test_a_corrected_list_of_conda_has_new_hashes_and_lacks_removed_files(path: str, tmp_path: Path) -> None:
    new = write(tmp_path / "new", "content")
    entries: list[dict[str, object]] = [
        {"_path": name, "sha256": "old", "size_in_bytes": 1, "no_link": True}
        for name in ("a", "gone", "kept")
    ]
    entries[0]["sha256_in_prefix"] = "of the installed file"
    document: dict[str, Any] = {"paths": entries}
    if path.startswith("conda-meta"):
        document = {"name": "x", "files": ["a", "gone", "kept"], "paths_data": {"paths": entries}}
    file = write(tmp_path / path, json.dumps(document))
    text = file_lists.correct_list(file, path, {"gone"}, {"a": new})
    assert text is not None
    made = json.loads(text)
    digest = sha256(b"content").hexdigest()
    corrected = {**entries[0], "sha256": digest, "sha256_in_prefix": digest, "size_in_bytes": 7}
    assert made.get("paths_data", made)["paths"] == [corrected, entries[2]]
    assert made.get("files", ["a", "kept"]) == ["a", "kept"]
    assert file_lists.correct_list(file, path, (), {}) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a-1.dist-info/RECORD", f'a.py,"{"x" * 140_000}'), ("conda-meta/a.json", "{}"), ("conda-meta/a.json", "[1]"),
        ("conda-meta/a.json", '{"name": "a", "version": 1, "files": 3}'), ("conda-meta/a.json", "[" * 100_000),
    ],
    ids=["a field of megabytes", "no keys", "no object", "no list", "nested"],
)  # fmt: skip
def test_a_list_that_cannot_be_read_is_named_with_its_file(name: str, content: str, tmp_path: Path) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(IntegrityError, match=f"{file.name}: malformed file list: ."):
        file_lists.read_list(tmp_path, file)
