"""A script under the doctor behaves as without it: arguments, output, exceptions and exit code."""

import json
import os
import platform

import pytest

from tests.commands import run, run_python
from tests.doctor.situations import make_photos

# Loading takes no time, and no change is tried, unless a script begins with this.
SLOW = "Numbers.takes_s = 0.01\n"
LITTLE = "There is too little work for loading to matter: 8 batches took"


def test_arguments_name_and_folder_are_those_of_python(script):
    (script("").parent / "beside.py").write_text("WORD = 'beside'")
    path = script(
        "import beside\n"
        "print(sys.argv[1:], __name__, __file__ == sys.argv[0], beside.WORD, "
        "sys.modules['__main__'].Numbers is Numbers)"
    )
    done = run("doctor", path, "--epochs", "3", "-x")
    assert done.returncode == 0, done.stderr
    assert "['--epochs', '3', '-x'] __main__ True beside True" in done.stdout
    assert "nothing to judge" in done.stdout


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.soak), 2])
def test_batches_and_random_states_are_the_same(script, workers):
    path = script(f"{SLOW}print(batches({workers}), torch.rand(1).item())")
    watched = run("doctor", path)
    assert watched.returncode == 0, watched.stderr
    plain = run_python(path)
    assert watched.stdout.startswith(plain.stdout)
    # From Python 3.14 on, workers import everything again, and starting them may take longer than the epoch.
    assert workers or "Transforms are the limit" in watched.stdout


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide for themselves")
def test_memory_that_the_script_frees_goes_back_to_the_kernel_as_without_the_doctor(script):
    # Otherwise, a dataset that decodes photos would be up to three times faster under the doctor.
    path = script(
        "import resource, numpy\n"
        "for image in [numpy.empty(2 << 20, numpy.uint8) for _ in range(3)]: image[::4096] = 1\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(9): numpy.empty(20 << 20, numpy.uint8)[::4096] = 1\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 9 > 5000)\n"
        "batches()"
    )
    assert run("doctor", path).stdout.startswith(run_python(path).stdout)


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ("batches(); raise KeyError('oops')", 1, "KeyError: 'oops'"),
        ("batches(); sys.exit(7)", 7, ""),
        ("batches(); sys.exit(('no', 'luck'))", 1, "('no', 'luck')"),
    ],
    ids=["an exception", "an exit code", "an exit message"],
)
def test_the_script_ends_as_it_does_by_itself_after_the_report(script, end, code, message):
    done = run("doctor", "--quiet", script(end))
    assert done.returncode == code
    assert message in done.stderr
    assert "fastload" not in done.stderr
    assert LITTLE in done.stdout


def test_a_failure_before_the_first_batch_is_not_judged(script):
    done = run("doctor", script("next(iter(torch.utils.data.DataLoader([None])))"))
    assert done.returncode == 1
    assert "little" not in done.stdout
    assert "The script ended with TypeError: default_collate: batch must contain" in done.stdout
    assert "There is nothing to judge: no batch was loaded" in done.stdout


def test_json_is_the_only_standard_output(script):
    done = run("doctor", "--json", "--steps", "5", script(f"{SLOW}print('hello'); batches(); print('last')"))
    assert done.returncode == 0
    content = json.loads(done.stdout)
    assert "hello" in done.stderr
    assert "last" not in done.stderr
    assert content["parts"][0]["measurements"]["batches"] == 5
    assert content["verdict"] == "transforms"


def test_ending_the_script_early_is_not_reported_as_its_error(script):
    path = script("try:\n    batches()\nexcept KeyboardInterrupt:\n    sys.exit(1)")
    done = run("doctor", "--steps", "3", path)
    assert done.returncode == 0
    assert "ended early" in done.stdout


def test_the_batches_of_a_batch_sampler_make_the_epoch(script):
    path = script(
        "from torch.utils.data import BatchSampler\n"
        "list(DataLoader(Numbers(), batch_sampler=BatchSampler(range(64), 16, False)))"
    )
    [part] = json.loads(run("doctor", "--json", path).stdout)["parts"]
    assert part["measurements"]["batch_size"] * part["measurements"]["epoch_batches"] == 64


def test_several_loaders_are_told_apart_and_the_slowest_comes_first(script):
    text = "short = DataLoader(Numbers(), 8, sampler=range(1))\nbatches()\nlist(short)\nbatches()"
    path = script(f"Numbers.takes_s = 0.003\n{text}")
    parts = json.loads(run("doctor", "--json", path).stdout)["parts"]
    assert [part["measurements"]["batches"] for part in parts] == [8, 8, 1]


@pytest.mark.soak
def test_spawned_workers_are_watched_too(script):
    path = script("list(DataLoader(Numbers(), 8, num_workers=1, multiprocessing_context='spawn'))")
    [part] = json.loads(run("doctor", "--json", path).stdout)["parts"]
    assert part["measurements"]["work"]["samples"] == 64


def test_one_rank_of_a_machine_reports(script):
    path = script("batches()")
    done = run("doctor", path, env={**os.environ, "LOCAL_RANK": "1"})
    assert done.returncode == 0
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["nowhere.py"], ["broken.py"], ["nowhere/"], ["--steps", "3", "photos"]],
    ids=" ".join,
)
def test_bad_input_is_one_sentence(arguments, tmp_path):
    (tmp_path / "broken.py").write_text("this is no Python")
    (tmp_path / "photos").mkdir()
    done = run("doctor", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("fastload: ")


def test_an_unknown_option_after_a_folder_is_named(tmp_path):
    done = run("doctor", tmp_path, "--jsom")
    assert done.returncode == 2
    assert "unknown option --jsom: did you mean '--json'?" in done.stderr


def test_an_incompatible_torch_is_reported_in_one_sentence(script):
    code = (
        "import sys, torch.utils.data._utils.worker as worker\ndel worker._worker_loop\n"
        "from fastload.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = run_python("-c", code, "doctor", script("batches()"))
    assert done.returncode == 2
    assert done.stderr.startswith("fastload: 'fastload doctor' must be able to wrap torch's loader")
    assert "_worker_loop" in done.stderr
    assert "Traceback" not in done.stderr


def test_packed_data_without_a_readable_record_is_reported(tmp_path):
    import fastload

    fastload.pack(make_photos(tmp_path / "photos", 4, 64, 64), tmp_path / "photos.fl", workers=1)
    for shard in (tmp_path / "photos.fl").glob("shard-*"):
        content = shard.read_bytes()
        shard.write_bytes(b"\0" * len(content))
    done = run("doctor", "--json", tmp_path / "photos.fl")
    assert done.returncode == 2
    assert done.stderr.startswith("fastload: ")
    assert "Traceback" not in done.stderr


def test_a_module_is_run_as_python_does(script, tmp_path):
    package = script("").parent / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "beside.py").write_text("WORD = 'beside'")
    (package / "train.py").write_text(
        "import sys\nfrom . import beside\nfrom train import batches\n"
        "print(beside.WORD, __name__, __package__, __spec__.name, sys.argv[1:], sys.path[0])\n"
        "if __name__ == '__main__':\n    batches()\n    print(__file__ == sys.argv[0])"
    )
    done = run("doctor", "-m", "package.train", "--epochs", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plain = run_python("-m", "package.train", "--epochs", "3", cwd=tmp_path)
    assert done.stdout.startswith(plain.stdout)
    assert LITTLE in done.stdout


def test_a_relative_script_has_an_absolute_file_and_its_own_name(script):
    path = script("print(__file__, sys.argv, sys.path[0], __spec__)")
    done = run("doctor", path.name, "-x", cwd=path.parent)
    assert done.stdout.startswith(run_python(path.name, "-x", cwd=path.parent).stdout)


@pytest.mark.parametrize("command", ["doctor", "run"])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait).start(); os._exit(0)", 0),
        ("try: os._exit(3)\nexcept BaseException: pass\nfinally: print('wenton')", 3),
    ],
    ids=["beside a thread that never ends", "in a block that catches everything"],
)
def test_a_hard_exit_is_final_and_reported_with_the_batches_before_it(script, command, end, code):
    done = run(command, script(f"import os\nbatches()\n{end}"))
    assert done.returncode == code
    assert {"wenton", "Traceback"}.isdisjoint((done.stdout + done.stderr).split())
    if command == "run":
        assert "DataLoader of Numbers, 64 samples" in done.stderr
    else:
        assert f"ended by os._exit({code}) after 8 batches" in done.stdout
        assert LITTLE in done.stdout


def test_batches_of_another_thread_are_said_not_to_be_watched(script):
    done = run("doctor", script("import threading; threading.Thread(target=batches).start()"))
    assert "no batch was loaded in the main thread of this process" in done.stdout


def test_json_identifies_machine_and_versions_and_holds_the_error_of_a_failed_script(script, tmp_path):
    failed = run("doctor", "--json", script("raise KeyError('lr')"))
    make_photos(tmp_path / "photos", 4, 64, 64)
    for done in (failed, run("doctor", "--json", tmp_path / "photos")):
        content = json.loads(done.stdout)
        assert content["machine"]["usable_cpus"] > 0
        assert {"Python", "fastload", "torch"} <= content["versions"].keys()
        assert content["error"] is None or failed is done
    error = json.loads(failed.stdout)["error"]
    assert error.startswith("Traceback")
    assert error.endswith("KeyError: 'lr'\n")
    assert "fastload/" not in error


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("import subprocess; subprocess.run([sys.executable, '-c', 'pass', '--lr', '1'])", "-c pass --lr 1"),
        (
            "import torch.multiprocessing as mp; mp.spawn(train)",
            "train()",
        ),
    ],
    ids=["subprocess", "spawn"],
)
def test_a_training_in_child_processes_is_reported_without_figures(script, start, name):
    done = run("doctor", "--json", script(start, "\ndef train(rank):\n    batches()\n"))
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["parts"] == []
    assert name in " ".join(content["notes"])
    assert "not watched" in " ".join(content["notes"])


@pytest.mark.soak
def test_changes_are_tried_on_an_evaluation_that_waits_too(script):
    path = script(
        f"{SLOW}model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "training, testing = DataLoader(range(64), 8), DataLoader(Numbers(), 8)\n"
        "for _ in range(2):\n"
        "    for _ in training:\n"
        "        time.sleep(0.02)\n"
        "        optimizer.step()\n"
        "    list(testing)"
    )
    parts = json.loads(run("doctor", "--json", path).stdout)["parts"]
    measured = [part["measurements"] for part in parts]
    assert [each["role"] for each in measured] == ["training", "evaluation"]
    assert "workers" in [trial["kind"] for trial in measured[1]["trials"]]


def test_an_unknown_number_of_samples_is_not_counted_as_zero(script):
    done = run(
        "doctor",
        script("list(DataLoader(Many(), batch_size=None))", "class Many(Numbers):\n    pass\n"),
    )
    assert done.returncode == 0, done.stderr
    assert "batches/s" in done.stdout
    assert "batch_size=0" not in done.stdout
    assert "0 samples/s" not in done.stdout
