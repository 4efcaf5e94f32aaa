"""The tests of a module, found from its name: `python -m tests.modules fastload/images/jpeg.py` lists them.

The tests of `fastload/ROOM/…/NAME.py` are those below `tests/ROOM` whose names begin with `test_NAME` or
`test_FOLDER_NAME`; the folder is that of the module. The other modules have an
entry in `ELSEWHERE`, or their folder has one. tests/test_modules.py keeps both true.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Tests, as patterns, and the modules and folders of fastload/ that they are about.
ELSEWHERE: dict[str, str] = {
    "test_house.py": "_version",
    "test_without_opencv.py": "images/opencv",
    "test_without_posix.py": "system/file_locks",
    "bench/test_*.py": "bench cli/bench",
    "cli/test_cli.py": "cli __main__",
    "cli/test_output.py": "cli",
    "cli/test_form.py": "cli",
    "cli/test_escaping.py": "errors",
    "cli/test_preview.py": "datasets/preview",
    "cli/test_run*.py": "loader/replacing system/patching",
    "datasets/test_*.py": "datasets",
    "datasets/cache/test_*.py": "datasets/cache system/cache_folder system/own_files",
    "datasets/compiled/test_*.py": "datasets/compiled",
    "datasets/test_contracts.py": "contracts",
    "doctor/test_fixes.py": "doctor/judging/evidence",
    "doctor/test_gpu.py": "doctor/watching/machine",
    "doctor/test_interrupted.py": "system/signals",
    "doctor/test_diagnosis.py": "cli/diagnosis",
    "doctor/test_rerunning.py": "system/statements",
    "doctor/test_script.py": "doctor cli/doctor",
    "doctor/test_situations.py": "doctor",
    "doctor/test_step_fixes.py": "doctor/judging/step_changes",
    "doctor/test_thresholds.py": "doctor",
    "doctor/test_ranks.py": "doctor/watching/sync",
    "doctor/test_watch.py": "doctor/watching/record",
    "frameworks/test_huggingface.py": "datasets/compiled/huggingface",
    "frameworks/test_ray.py": "packing/running/ray",
    "frameworks/test_ultralytics*.py": "ultralytics transforms/mixing/mosaics transforms/scenes",
    "frameworks/test_yolov5*.py": "ultralytics",
    "images/test_*.py": "images",
    "images/test_encodings.py": "images/source_pixels images/nv12",
    "layouts/test_*.py": "sources",
    "layouts/test_class_folders.py": "sources/classes",
    "layouts/test_coco*.py": "sources/coco",
    "layouts/test_container_folders.py": "sources/containers",
    "layouts/test_huggingface.py": "sources/huggingface",
    "layouts/test_lmdb_layouts.py": "sources/databases",
    "layouts/test_malformed*.py": "sources/malformed",
    "layouts/test_masks.py": "sources/masks images/masks",
    "layouts/test_object_table.py": "sources/table/objects",
    "layouts/test_tar_names.py": "sources/webdataset",
    "layouts/test_voc.py": "sources/voc",
    "layouts/test_webdataset.py": "sources/webdataset",
    "layouts/test_yolo*.py": "sources/yolo",
    "layouts/test_descriptions.py": "sources/yolo",
    "loader/test_changed_datasets.py": "loader/compiling loader/dataset_state",
    "loader/test_dataset_fingerprint.py": "loader/dataset_state",
    "loader/test_errors.py": "loader/iterators loader/dataloader",
    "loader/test_held_batches.py": "loader/transport/memory loader/transport/serialization",
    "loader/test_limits.py": "loader/iterators loader/transport/memory",
    "loader/test_odd_batches.py": "loader/transport/serialization",
    "loader/test_options.py": "loader/arguments loader/dataloader loader/resume/epochs",
    "loader/test_report.py": "loader/clock",
    "loader/test_resume*.py": "loader/resume loader/iterators/order",
    "loader/test_same_as_torch.py": "loader/iterators loader/dataloader",
    "loader/test_small_images.py": "loader/compiling",
    "loader/test_stateful_datasets.py": "loader/resume/dataset_states",
    "loader/test_torch_members.py": "loader/torch_private",
    "loader/test_unpicklable.py": "loader/transport/picklable",
    "loader/test_wrapped_datasets.py": "loader/transport/making loader/transport/seeding",
    "loader/sharding/test_*.py": (
        "loader/sharding loader/sharded_sampler loader/sharded_loaders loader/sample_weights"
    ),
    "loader/transport/test_slots.py": "loader/transport/memory loader/transport/serialization",
    "loader/tuning/test_cached_loader.py": "loader/caching",
    "loader/tuning/test_decide.py": "loader/tuning/tuning loader/measurements",
    "loader/tuning/test_explicit.py": "loader/strategies loader/arguments",
    "loader/tuning/test_failing_workers.py": "loader/tuning/epoch",
    "loader/tuning/test_global_generators.py": "loader/transport/seeding system/random_states",
    "loader/tuning/test_limits.py": "loader/measurements",
    "loader/tuning/test_plans.py": "loader/strategies",
    "loader/tuning/test_prefetching.py": "loader/strategies loader/iterators/workers",
    "loader/tuning/test_same_batches.py": "loader/tuning/epoch loader/transport/seeding",
    "loader/tuning/test_thresholds.py": "loader/tuning/tuning loader/measurements",
    "loader/tuning/test_tuned_loader.py": "loader/tuning/epoch loader/strategies",
    "packing/test_*.py": "packing",
    "packing/test_schedule.py": "packing/running/workers",
    "packing/test_interrupted.py": "packing/staging system/signals",
    "packing/test_destination.py": "packing/staging",
    "packing/test_unpack_labels.py": "sources/table/cells",
    "remote/test_*.py": (
        "shards/remote shards/http_stream shards/copies shards/ranged shards/remote_errors "
        "shards/remote_shards shards/reading_ahead"
    ),
    "shards/test_*.py": "shards",
    "sources/test_*.py": "sources",
    "sources/test_dataset.py": "sources/dataset",
    "sources/test_doubts.py": "sources/classes",
    "sources/test_table*.py": "sources/table",
    "system/test_*.py": "system",
    "system/test_memory.py": "system/proc",
    "system/test_read_speed.py": "system/page_cache",
    "transforms/test_*.py": "transforms",
    "ultralytics/test_*.py": "ultralytics",
}


def find_tests(module: Path) -> list[Path]:
    """Return the tests of a module, given by its path below fastload/."""
    name = module.stem
    below = ROOT / "tests" / module.parts[0]
    named = {
        path for start in (name, f"{module.parent.name}_{name}") for path in below.rglob(f"test_{start}*.py")
    }
    for place in (module.with_suffix(""), *module.parents):
        patterns = [pattern for pattern, places in ELSEWHERE.items() if place.as_posix() in places.split()]
        if named or patterns:
            return sorted(named.union(*((ROOT / "tests").glob(pattern) for pattern in patterns)))
    return []


if __name__ == "__main__":
    for given in sys.argv[1:]:
        tests = find_tests(Path(given).resolve().relative_to(ROOT / "fastload"))
        print(*(path.relative_to(ROOT) for path in tests))
