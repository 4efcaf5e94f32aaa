"""Scripts, modules and commands are found as Python and the shell find them."""

import sys

from fastload.system.script import find


def test_annotations_are_evaluated_as_by_python(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def train(epochs: int): ...\nkinds = train.__annotations__\n")
    names = {}
    exec(find(str(path), False, []).code, names)
    assert names["kinds"] == {"epochs": int}


def test_a_command_beside_python_is_found_without_its_environment(tmp_path, monkeypatch):
    (tmp_path / "train-it").write_text("#!python\nprint(1)\n")
    (tmp_path / "train-it").chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find("train-it", False, []).argv == [str(tmp_path / "train-it")]


def test_the_command_of_a_script_or_module_can_be_pasted(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "train.py"
    path.write_text("pass")
    assert find(str(path), False, ["--name", "my run"]).command == f"{path} --name 'my run'"
    assert find("json.tool", True, ["--indent"]).command == "-m json.tool --indent"
    assert find("ensurepip", True, []).command == "-m ensurepip"
    assert find("python", False, [str(path), "--fast"]).command == f"{path} --fast"
    assert find("python3", False, ["-m", "ensurepip"]).command == "-m ensurepip"
    monkeypatch.setenv("PATH", str(path.parent))
    path.chmod(0o755)
    assert find(path.name, False, ["train"]).command == f"{path} train"
