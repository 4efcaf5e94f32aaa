"""Copies of `/proc/self` and of cgroups."""

from pathlib import Path

import pytest


class Tree:
    """A `/proc/self` and the cgroups that it names, laid out as by the kernel."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.proc.mkdir()
        self.write("proc/cgroup", "0::/\n")
        self.write("proc/mountinfo", "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n")

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def mount(self, point: str, kind: str, options: str, root: str = "/") -> None:
        shown = str(self.root / point).replace("\\", "\\134").replace(" ", "\\040")
        with (self.proc / "mountinfo").open("a", encoding="utf-8") as file:
            file.write(f"31 23 0:28 {root} {shown} rw,nosuid shared:9 - {kind} {kind} {options}\n")

    def group(self, folder: str, **files: str) -> None:
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            self.write(f"{folder}/{name.replace('__', '.')}", text + "\n")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def v2(tree):
    """Version 2, the process in /jobs/train."""
    tree.write("proc/cgroup", "0::/jobs/train\n")
    tree.mount("cg", "cgroup2", "rw,nsdelegate")
    for folder in ("cg", "cg/jobs", "cg/jobs/train"):
        tree.group(folder)
    return tree


@pytest.fixture
def v1(tree):
    """Version 1, cpu and cpuacct mounted together; version 2 beside it without controllers."""
    tree.write("proc/cgroup", "5:memory:/jobs\n4:cpu,cpuacct:/jobs\n3:cpuset:/\n0::/jobs\n")
    tree.mount("cg/cpuset", "cgroup", "rw,cpuset")
    tree.mount("cg/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")
    tree.mount("cg/memory", "cgroup", "rw,memory")
    tree.mount("cg/unified", "cgroup2", "rw")
    return tree
