"""Members of tar shards, grouped to samples by one of two rules for their names, or to class folders."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.sources.classes.doubts import doubts
from fastload.sources.classes.source import split_folders
from fastload.sources.files import NOT_FOUND, FileList, NameTable, list_files, safe_key
from fastload.sources.left_out import LeftOutFiles, clutter_reason
from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.webdataset.tar import (
    IMAGES,
    RULES,
    TAR_SUFFIXES,
    TEXTS,
    TarReader,
    are_words,
    kind_of,
    tar_members,
)

WITHOUT_IMAGE = (*TEXTS, "npy")
"""One of these kinds of members shows that an archive without images holds samples."""

_META = re.compile("__[^/]*__(/|$)")
_NO_MEMBER = "not a member of a sample"
_MOST_EXTENSIONS = 1000
_ALL_BYTES = 1 << 62

_Integers = npt.NDArray[np.int64]

Spans = npt.NDArray[np.int64]
"""The offset and size of a member for each sample, (2, samples); -1 where there is none."""

UNPACK = "unpack the tar files (tar -xf), and pack the folder"


class Members(NamedTuple):
    """The members of one split's shards in their order: names, and for each its shard, offset and size."""

    files: FileList
    names: NameTable
    places: _Integers  # (members, 3)


def list_members(root: str, shards: Iterable[str], left_out: LeftOutFiles) -> Members:
    """List the members of shards that samples may have; all others but folders are left out."""
    files = list_files(root, shards)
    names, places = NameTable(), array("q")
    for number, shard in enumerate(files.names):
        for name, offset, size_bytes in tar_members(files.path(number)):
            if size_bytes == NOT_FOUND:
                left_out.add(f"{shard}/{safe_key(name)}", "a link or a device")
            elif not RULES["first dot"](name)[0] or _META.match(name):
                left_out.add(f"{shard}/{safe_key(name)}", _NO_MEMBER)
            else:
                names.append(name)
                places.extend((number, offset, size_bytes))
    return Members(files, names, np.array(places, np.int64).reshape(-1, 3))


class Samples:
    """The members of one split's shards as samples: neighbours in a shard with the same key.

    `columns` maps each extension to the indices of samples and of their members with it; WebDataset ignores
    the case of extensions, so they are in lower case here, and as first written in `spelled`.
    """

    def __init__(self, members: Members, rule: str) -> None:
        self.members = members
        self.rule = rule
        self.spelled: dict[str, str] = {}
        self.repeated = -1  # the first member of an extension that its sample already has
        split = RULES[rule]
        first, sample_of = array("q"), array("q")
        columns: dict[str, array[int]] = {}
        last: tuple[int, str] | None = None
        for index, (name, shard) in enumerate(zip(members.names, members.places[:, 0].tolist(), strict=True)):
            key, spelled = split(name)
            if (shard, key) != last:
                last = shard, key
                first.append(index)
            sample_of.append(len(first) - 1)
            extension = spelled.lower()
            self.spelled.setdefault(extension, spelled)
            column = columns.setdefault(extension, array("q"))
            if column and column[-2] == len(first) - 1 and self.repeated < 0:
                self.repeated = index
            column.extend((len(first) - 1, index))
        self.first = np.array(first, np.int64)  # the first member of each sample
        self.sample_of = np.array(sample_of, np.int64)
        self.shard_of: _Integers = members.places[self.first, 0]
        self.columns = {name: np.array(column).reshape(-1, 2).T for name, column in columns.items()}
        images = [extension for extension in self.columns if kind_of(extension) in IMAGES]
        counts = self._counted(images)
        # One image for each sample, with any of these extensions; or none.
        self.images = {"image": images} if images else {}
        if images and counts.max() > 1:
            best = max(images, key=lambda each: self.columns[each].shape[1])
            self.images = {"image": [best], **{each: [each] for each in images if each != best}}
        self.others = [extension for extension in self.columns if kind_of(extension) not in IMAGES]

    def __len__(self) -> int:
        return len(self.first)

    def key(self, sample: int) -> str:
        """Return the key of a sample."""
        return RULES[self.rule](self.members.names[int(self.first[sample])])[0]

    def member_of(self, extensions: Iterable[str]) -> _Integers:
        """Return the member of each sample that has one of these extensions; -1 for none."""
        found = np.full(len(self), -1, np.int64)
        for extension in extensions:
            samples, members = self.columns[extension]
            found[samples] = members
        return found

    def spans(self, extensions: Iterable[str]) -> Spans:
        """Return the offset and size of the member of each sample with one of these extensions."""
        members = self.member_of(extensions)
        return np.where(members < 0, -1, self.members.places[members, 1:].T)

    def texts(self, extension: str) -> list[str]:
        """Return the members with an extension as texts, for the samples that have one."""
        return [data.decode("utf-8", "surrogateescape") for data in self.contents(extension)]

    def contents(self, extension: str, most_bytes: int = _ALL_BYTES) -> Iterator[bytes]:
        """Yield the first bytes of the members with an extension, for the samples that have one."""
        offsets, sizes = self.spans([extension])
        reader, shards = TarReader(), self.shard_of
        for sample in np.flatnonzero(offsets >= 0).tolist():
            path = self.members.files.path(int(shards[sample]))
            yield reader.read(path, int(offsets[sample]), min(int(sizes[sample]), most_bytes))

    @property
    def is_complete(self) -> bool:
        """True if no sample lacks a member that others have."""
        groups = [*self.images.values(), *([each] for each in self.others)]
        return self.repeated < 0 and all(len(self) == self._counted(group).sum() for group in groups)

    def _counted(self, extensions: Iterable[str]) -> _Integers:
        counts = np.zeros(len(self), np.int64)
        for extension in extensions:
            counts[self.columns[extension][0]] += 1
        return counts

    def require_samples(self) -> None:
        """Raise SourceError unless these are samples, without a member of which there are two."""
        if self.repeated >= 0:
            _, spelled = RULES[self.rule](self.members.names[self.repeated])
            key = self.key(int(self.sample_of[self.repeated]))
            shard, offset, _ = self.members.places[self.repeated].tolist()
            where = f"{self.members.files.path(shard)}, offset {offset}: sample {key!r}"
            got = "a second (the case of letters does not count)"
            raise malformed(where, f"have one member .{spelled.lower()}", got, "write the shard again")
        where = self.members.files.path(0)
        if not self.images and not any(kind_of(each) in WITHOUT_IMAGE for each in self.columns):
            got = ", ".join(f".{each}" for each in [*self.columns][:20]) or "no samples"
            must = "hold samples with an image (.jpg, .png, …), or with texts or arrays (.txt, .json, .npy)"
            are_tars = any(f".{each}".endswith(TAR_SUFFIXES) for each in self.columns)
            step = "unpack it into a folder (tar -xf), and pack that" if are_tars else "check the shards"
            raise malformed(where, must, got, step)
        if len(self.images) + len(self.others) > _MOST_EXTENSIONS:
            got = f"{len(self.columns):,}"
            raise malformed(where, f"have at most {_MOST_EXTENSIONS:,} extensions", got, "rename its members")

    def without_strays(self, left_out: LeftOutFiles) -> Samples:
        """Return the samples without files that are beside them: lists of classes, READMEs.

        These have no image, unlike the samples, and share a name with none; files about the dataset may be
        beside samples of any kind.
        """
        has_image = self._counted(each for group in self.images.values() for each in group) > 0
        if has_image.all() or not has_image.any():
            return self
        has_other = self._counted(self.others) > 0
        names = [self.members.names[int(index)] for index in self.first]
        strays = np.flatnonzero(~has_image)
        are_mixed = bool((has_image & has_other).any())
        if not are_mixed and (stem := self._shared_name(has_image)):
            must, got = "have the members of a sample beside each other", f"those of {stem!r} in two folders"
            raise malformed(self.members.files.path(0), must, got, UNPACK)
        if are_mixed or "cls" in self.columns:
            strays = strays[[clutter_reason(os.path.basename(names[at])) is not None for at in strays]]
        if not len(strays):
            return self
        is_stray = np.isin(self.sample_of, strays)
        for index in np.flatnonzero(is_stray).tolist():
            shard = self.members.files.names[int(self.members.places[index, 0])]
            left_out.add(f"{shard}/{safe_key(self.members.names[index])}", _NO_MEMBER)
        kept = NameTable(self.members.names[index] for index in np.flatnonzero(~is_stray).tolist())
        return Samples(Members(self.members.files, kept, self.members.places[~is_stray]), self.rule)

    def _shared_name(self, has_image: npt.NDArray[np.bool_]) -> str | None:
        """Return the name of an image that is also that of a sample without one, in another folder."""
        stems: tuple[set[str], set[str]] = (set(), set())
        for sample, is_image in enumerate(has_image.tolist()):
            stems[is_image].add(os.path.basename(self.key(sample)))
        return min(stems[0] & stems[1], default=None)


def grouped(path: str, splits: Mapping[str, Members], left_out: LeftOutFiles) -> dict[str, Samples]:
    """Return the samples of all splits by the rule that fits their names; raise SourceError if both may."""
    found = _by_one_rule(path, [*splits.values()])
    samples = [each.without_strays(left_out) for each in found]
    for each in samples:
        each.require_samples()
    return dict(zip(splits, samples, strict=True))


def _by_one_rule(path: str, splits: Sequence[Members]) -> list[Samples]:
    by_dot = [Samples(members, "first dot") for members in splits]
    first_dot, suffixes = RULES.values()
    # The members whose key depends on the rule.
    dotted = [
        [
            at
            for at, name in enumerate(each.names)
            if name.count(".") > 1 and first_dot(name) != suffixes(name)
        ]
        for each in splits
    ]
    if not any(dotted):
        return by_dot
    by_suffixes = [Samples(members, "suffixes") for members in splits]
    is_complete, is_other_complete = (all(s.is_complete for s in each) for each in (by_dot, by_suffixes))
    extensions = {first_dot(s.members.names[at])[1] for s, d in zip(by_dot, dotted, strict=True) for at in d}
    are_fields = all(map(are_words, extensions))
    if all(np.array_equal(a.sample_of, b.sample_of) for a, b in zip(by_dot, by_suffixes, strict=True)):
        # The samples are the same, only the names of their fields differ.
        is_repeated = max(map(len, by_dot)) > 1
        return by_dot if are_fields and is_complete and is_repeated else by_suffixes
    if is_complete != is_other_complete:
        return by_dot if is_complete else by_suffixes
    has_plain = False  # a sample by WebDataset's rule has some of the differing members, and one that is not
    for each, indices in zip(by_dot, dotted, strict=True):
        members = np.bincount(each.sample_of, minlength=len(each))
        of_dotted = np.bincount(each.sample_of[indices], minlength=len(each))
        has_plain |= bool(((of_dotted > 0) & (of_dotted < members)).any())
    if are_fields == has_plain:
        return by_dot if has_plain else by_suffixes
    samples, at = next((s, d[0]) for s, d in zip(by_dot, dotted, strict=True) if d)
    name = samples.members.names[at]
    (key, extension), (other, suffix) = (RULES[rule](name) for rule in RULES)
    raise malformed(
        f"{path}: {name!r}",
        "be a member in one reading",
        f"two: .{extension} of the sample {key!r} (as WebDataset reads it), or .{suffix} of {other!r}",
        "write the tar again with one dot in names of files that are samples by themselves, or for images "
        "alone, unpack it (tar -xf) and pack the folder",
    )


def class_folders(path: str, samples: Samples) -> list[str] | None:
    """Return the class folder of each sample; None if they have more than an image, or are in one folder.

    SourceError is raised where the folders could be something other than classes.
    """
    if samples.others or len(samples.images) != 1:
        return None
    keys = [safe_key(name) for name in samples.members.names]
    listing, depth = _listing_of(path, keys), 0
    while len(listing.top.folders) == 1 and not listing.top.images:
        listing, depth = listing.view(listing.top.folders[0]), depth + 1
    folders = listing.top.folders
    if not folders:
        return None
    must = "hold images in class folders, or in none"
    if listing.top.images:
        got = f"{listing.top.images[0]!r} beside the folders {in_quotes(folders)}"
        raise malformed(listing.name, must, got, UNPACK)
    splits = split_folders(listing.name, folders)
    if splits:
        raise malformed(listing.name, must, f"folders of splits, {in_quotes([*splits.values()])}", UNPACK)
    for doubt in doubts(listing):
        raise malformed(listing.name, must, f"two readings: classes, or {doubt.reading}", UNPACK)
    return [key.split("/")[depth] for key in keys]


def _listing_of(path: str, keys: Iterable[str]) -> Listing:
    """Return the listing that the folder would have if the images were unpacked."""
    folders = {"": Folder("")}
    for key in keys:
        place, _, name = key.rpartition("/")
        if place not in folders:
            parts = place.split("/")
            for end in range(1, len(parts) + 1):
                above, inner = "/".join(parts[: end - 1]), "/".join(parts[:end])
                if inner not in folders:
                    folders[inner] = Folder(inner)
                    folders[above].folders.append(parts[end - 1])
        folders[place].images.append(name)
    for folder in folders.values():
        folder.folders.sort()
        folder.images.sort()
    return Listing(path, path, folders)
