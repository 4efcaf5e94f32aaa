"""How fast does fastload pack?

Method. JPEG files in class folders, generated with the file size of ImageNet's (about 110 KB), or those of
`--data`. The sides take turns; each is a whole process, so start-up counts. The files were read just
before, so they are in the page cache (with `--cold` they are dropped from it before each turn; names and
sizes stay cached); before the next turn, the output is removed and pending writes are flushed. No side
waits for its output to reach the disk. Three questions:

- *Byte for byte*: `fastload pack --encode keep` and `tar cf` on the same files. tar only copies. fastload
  also checks that every file is a complete image, computes the checksum of every record and of every shard,
  and writes an index.
- *Lossless tiles*: `--encode tiled` and jpegtran alone: as many processes, the same files and flags,
  started by xargs with the restart interval of every file computed beforehand, reading a file and writing a
  file. That is the cost of the rewriting itself; fastload also decodes source and result and compares every
  pixel.
- *Re-encoded*: `--encode jpeg --quality 90` and FFCV's DatasetWriter (JPEG, quality 90) with as many
  workers: once with files decoded by OpenCV, like fastload, and once by PIL, as in FFCV's documentation.
  Both the writer alone, without the seconds of FFCV's import, and the whole process. fastload's files have
  restart markers and checksums; FFCV's have neither.

Reading it. `relative time` is the median as a multiple of the first row's: below 1 is faster. `CPU` is the
time of all processes of a side: on a shared machine it is the steadier measure. `stored` is the size on the
disk afterwards. Peers that are not installed are listed (`make peers` installs them).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from _harness import (
    PEERS_OPTION,
    ROOT,
    Key,
    Missing,
    Reading,
    Report,
    Side,
    Table,
    drop_from_page_cache,
    folder_bytes,
    options_of,
    progress,
    publish,
    remove,
    take_turns,
    timed_command,
    work_folder,
)
from _photos import copy_folder, files_of, make_folder

from fastload.images.jpeg import choose_interval, parse_jpeg
from fastload.images.jpegtran import find_jpegtran
from fastload.shards.manifest import read_manifest
from fastload.system.cpus import usable_cpus

KEEP = "Byte for byte"
TILED = "Lossless tiles"
JPEG = "Re-encoded, quality 90"
FFCV_WRITER = ROOT / "benchmarks" / "peers" / "ffcv_writer.py"


def main() -> None:
    options = options_of(
        __doc__,
        data={"type": Path, "metavar": "FOLDER", "help": "JPEG files to use (made here)"},
        photos={"type": int, "metavar": "N", "help": "kept byte for byte (10 000)"},
        recoded={"type": int, "metavar": "N", "help": "tiled and re-encoded (2 000)"},
        workers={"type": int, "metavar": "N", "help": "processes (one a usable CPU)"},
        cold={"action": "store_true", "help": "drop the files from the page cache before a turn"},
        peers=PEERS_OPTION,
        only={"choices": ("keep", "tiled", "jpeg"), "help": "one question; not saved"},
    )
    options.workers = options.workers or usable_cpus()
    options.photos = options.photos or (12 if options.smoke else 10_000)
    options.recoded = options.recoded or (6 if options.smoke else 2_000)
    if options.cold and not hasattr(os, "posix_fadvise"):
        raise SystemExit("--cold needs posix_fadvise, which this system lacks")
    with work_folder(options) as folder:
        publish(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Answer the questions that the options select."""
    asked = [options.only] if options.only else ["keep", "tiled", "jpeg"]
    bench = Bench(options, folder)
    count = {"keep": options.photos, "tiled": options.recoded, "jpeg": options.recoded}
    photos = {number: bench.make_photos(number) for number in {count[name] for name in asked}}
    sides_of = {"keep": bench.keep, "tiled": bench.tiled, "jpeg": bench.jpeg}
    readings = {}
    for name in asked:
        source = photos[count[name]]
        sides = [bench.settled(side, source) for side in sides_of[name](source)]
        readings |= take_turns(sides, options.runs)
    titles = {"keep": KEEP, "tiled": TILED, "jpeg": JPEG}
    return Report(
        name="pack",
        question=str(__doc__).partition("\n")[0],
        setting={
            "data": "files given" if options.data else "files made by the benchmark",
            "bytes a photo": folder_bytes(photos[count[asked[0]]]) // count[asked[0]],
            "runs": options.runs,
            "workers": options.workers,
            "page cache": "cold (files dropped from it)" if options.cold else "warm",
        },
        tables=[Table(titles[name], "photos", count[name]) for name in asked],
        readings=readings,
        missing=bench.missing,
        versions=bench.versions,
    )


class Bench:
    """Sides of every question."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._output = folder / "output"
        self.missing: list[Missing] = []
        self.versions: dict[str, str] = {}

    def make_photos(self, count: int) -> Path:
        """Return a folder with photos in class folders."""
        photos = self._folder / f"photos-{count}"
        progress(f"making {count} photos")
        if self._options.data:
            copy_folder(self._options.data, photos, count)
        else:
            make_folder(photos, count)
        return photos

    def settled(self, side: Side, photos: Path) -> Side:
        """Return the side with the page cache in the stated condition, its output removed afterwards."""

        def run() -> Mapping[Key, Reading]:
            os.sync()
            touch = drop_from_page_cache if self._options.cold else Path.read_bytes
            for file in files_of(photos):
                touch(file)
            try:
                return side()
            finally:
                remove(self._output)

        return run

    def keep(self, photos: Path) -> list[Side]:
        """Return tar's side and fastload's."""
        tar = shutil.which("tar")
        sides: list[Side] = []
        if tar is None:
            self.missing.append(Missing(KEEP, "tar cf", "not installed"))
        else:
            self._note_version("tar", [tar, "--version"])
            command = [tar, "cf", self._output, "-C", photos.parent, photos.name]
            sides.append(lambda: {Key(KEEP, "tar cf"): self._stored(timed_command(command))})
        return [*sides, self._fastload(KEEP, photos, "keep")]

    def tiled(self, photos: Path) -> list[Side]:
        """Return jpegtran's side and fastload's."""
        jpegtran = find_jpegtran()
        if jpegtran is None:
            rows = ("jpegtran alone", "fastload pack --encode tiled")
            self.missing += [Missing(TILED, row, "jpegtran is not installed") for row in rows]
            return []
        self._note_version("jpegtran", [jpegtran, "-version"])
        arguments = self._folder / "jpegtran-arguments"
        arguments.write_bytes(b"".join(os.fsencode(word) + b"\0" for word in self._jobs(photos)))
        alone = partial(self._jpegtran, jpegtran, arguments)
        return [alone, self._fastload(TILED, photos, "tiled")]

    def jpeg(self, photos: Path) -> list[Side]:
        """Return FFCV's sides and fastload's."""
        fastload = self._fastload(JPEG, photos, "jpeg", "--quality", "90")
        python = self._options.peers / "ffcv" / "bin" / "python"
        if not python.exists():
            self.missing.append(Missing(JPEG, "FFCV", "not installed"))
            return [fastload]
        ffcv = [partial(self._ffcv, python, photos, decoder) for decoder in ("OpenCV", "PIL")]
        return [*ffcv, fastload]

    def _fastload(self, table: str, photos: Path, encode: str, *more: str) -> Side:
        workers = str(self._options.workers)
        command: list[str | os.PathLike[str]] = [sys.executable, "-m", "fastload", "pack", photos]
        command += [self._output, "--quiet", "--encode", encode, *more, "--workers", workers]
        # Compiles the modules to bytecode, which happens once after an installation.
        timed_command([sys.executable, "-c", "import fastload.packing.job, fastload.cli.pack"])
        count = len(files_of(photos))

        def run() -> dict[Key, Reading]:
            reading = self._stored(timed_command(command))
            assert read_manifest(self._output).records == count
            return {Key(table, " ".join(["fastload pack --encode", encode, *more])): reading}

        return run

    def _jobs(self, photos: Path) -> list[str]:
        """Return jpegtran's arguments for all files, one file after the other."""
        words = []
        for number, photo in enumerate(files_of(photos)):
            layout = parse_jpeg(photo.read_bytes())
            interval = choose_interval(layout.width, layout.mcu_width)
            words += ["-copy", "none", "-optimize", "-restart", f"{interval}B"]
            words += ["-outfile", str(self._output / f"{number:06d}.jpg"), str(photo)]
        return words

    def _jpegtran(self, jpegtran: str, arguments: Path) -> dict[Key, Reading]:
        self._output.mkdir()
        command = ["xargs", "-0", "-n", "8", "-P", str(self._options.workers), jpegtran]
        with arguments.open("rb") as words:
            reading = timed_command(command, stdin=words)
        return {Key(TILED, "jpegtran alone"): self._stored(reading)}

    def _ffcv(self, python: Path, photos: Path, decoder: str) -> dict[Key, Reading]:
        outcome_file = self._folder / "ffcv.json"
        command: list[str | os.PathLike[str]] = [python, FFCV_WRITER, photos, self._output, outcome_file]
        command += ["--workers", str(self._options.workers), "--decoder", decoder]
        # FFCV's writer waits forever for a worker that died.
        whole = self._stored(timed_command(command, timeout=1800))
        outcome = json.loads(outcome_file.read_text())
        self.versions |= outcome["versions"]
        alone = whole._replace(seconds=outcome["writer_s"], cpu_s=outcome["cpu_s"])
        name = f"FFCV, {decoder}"
        return {Key(JPEG, f"{name}, writer alone"): alone, Key(JPEG, f"{name}, whole process"): whole}

    def _stored(self, reading: Reading) -> Reading:
        return reading._replace(stored_bytes=folder_bytes(self._output))

    def _note_version(self, name: str, command: list[str]) -> None:
        with contextlib.suppress(OSError, IndexError):
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            line = done.stdout.decode(errors="replace").splitlines()[0]
            self.versions[name] = line.removeprefix(f"{name} ")


if __name__ == "__main__":
    main()
