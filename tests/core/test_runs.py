import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from core.errors import SettingError
from core.runs import Job, Runs, State, read_records


def until(what, seconds=20):
    """Wait for something to become true; gives it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.005)
    raise AssertionError("waited in vain")


def counting(steps, gate=None):
    """A job that counts, and saves how far it came."""

    def start(stop):
        step = 0
        while step < steps and not stop():
            if gate is not None:
                gate.acquire()
            step += 1
            yield step
        yield f"came to {step}"

    def record(event):
        return {"event": "step", "step": event} if isinstance(event, int) else None

    def save(last, folder):
        folder.mkdir()
        (folder / "last").write_text(last)

    return Job("counting", steps, start, record, save, {"settings": "mine"})


def ended(runs, run_id):
    return until(lambda: (run := runs.get(run_id)).state.over and run)


def test_a_run_is_recorded_and_its_result_saved(tmp_path):
    runs = Runs(tmp_path)
    run_id = runs.submit(counting(3), owner="a")
    run = ended(runs, run_id)
    assert run.state is State.DONE
    assert [record["step"] for record in run.records] == [1, 2, 3]
    assert run.step == run.steps == 3
    assert run.about == {"settings": "mine"}
    assert (run.result / "last").read_text() == "came to 3"
    assert Runs(tmp_path).get(run_id) == run  # found again by a new server


def test_one_runs_and_the_others_wait_in_order(tmp_path):
    runs, gate = Runs(tmp_path), threading.Semaphore(0)
    first, second, third = (runs.submit(counting(1, gate), owner=name) for name in "abc")
    until(lambda: runs.get(first).state is State.RUNNING)
    assert [runs.get(run_id).ahead for run_id in (first, second, third)] == [0, 1, 2]
    assert runs.get(third).state is State.QUEUED
    gate.release()
    until(lambda: runs.get(second).state is State.RUNNING)
    assert runs.get(third).ahead == 1
    gate.release(2)
    assert ended(runs, third).state is State.DONE


def test_two_workers_run_two_at_once(tmp_path):
    runs, gate = Runs(tmp_path, at_once=2), threading.Semaphore(0)
    both = [runs.submit(counting(1, gate), owner=name) for name in "ab"]
    until(lambda: all(runs.get(run_id).state is State.RUNNING for run_id in both))
    gate.release(2)
    for run_id in both:
        ended(runs, run_id)


def test_an_owner_has_one_unfinished_run(tmp_path):
    runs, gate = Runs(tmp_path), threading.Semaphore(0)
    run_id = runs.submit(counting(1, gate), owner="a")
    with pytest.raises(SettingError, match="at work already"):
        runs.submit(counting(1), owner="a")
    gate.release()
    ended(runs, run_id)
    assert ended(runs, runs.submit(counting(1), owner="a")).state is State.DONE


def test_stop_takes_effect_within_a_step_and_keeps_what_was_made(tmp_path):
    runs, gate = Runs(tmp_path), threading.Semaphore(0)
    run_id = runs.submit(counting(10**6, gate), owner="a")
    gate.release(2)
    until(lambda: runs.get(run_id).step == 2)
    runs.stop(run_id)
    runs.stop(run_id)  # twice is once
    gate.release()  # the step that it was in
    run = ended(runs, run_id)
    assert run.state is State.STOPPED
    assert run.step <= 3
    assert (run.result / "last").read_text() == f"came to {run.step}"


def test_stop_of_a_queued_run_and_at_once_after_the_start(tmp_path):
    runs, gate = Runs(tmp_path), threading.Semaphore(0)
    first = runs.submit(counting(1, gate), owner="a")
    queued = runs.submit(counting(1), owner="b")
    runs.stop(queued)
    assert runs.get(queued).state is State.STOPPED
    assert runs.get(queued).records == []
    gate.release()
    ended(runs, first)
    quick = runs.submit(counting(10**6), owner="c")
    runs.stop(quick)
    assert ended(runs, quick).state is State.STOPPED


def test_an_error_ends_its_run_with_its_reason_and_no_other(tmp_path):
    def torn(stop):
        yield 1
        raise SettingError("The rows are of no use.")

    def broken(stop):
        yield 1
        raise KeyError("a fault of ours, with a path: /secret")

    runs = Runs(tmp_path)
    for start, said in ((torn, "of no use"), (broken, "unexpected error")):
        job = counting(2)
        run_id = runs.submit(Job("counting", 2, start, job.record, job.save), owner="a")
        run = ended(runs, run_id)
        assert run.state is State.FAILED
        assert said in run.error
        assert "secret" not in run.error
        assert run.step == 1
        assert run.result is None
    assert ended(runs, runs.submit(counting(1), owner="a")).state is State.DONE


@pytest.mark.parametrize("run_id", ["", "../x", "0" * 32, "A" * 32, "0" * 31 + "\n"])
def test_an_id_is_never_a_path(tmp_path, run_id):
    (tmp_path.parent / "x").mkdir(exist_ok=True)
    (tmp_path.parent / "x" / "run.json").write_text("{}")
    assert Runs(tmp_path).get(run_id) is None
    Runs(tmp_path).stop(run_id)


def test_old_runs_are_forgotten_and_running_ones_kept(tmp_path):
    runs, gate = Runs(tmp_path, at_once=1, keep_hours=0), threading.Semaphore(0)
    old = runs.submit(counting(1), owner="a")
    ended(runs, old)
    kept = runs.submit(counting(1, gate), owner="a")
    until(lambda: runs.get(kept).state is State.RUNNING)
    time.sleep(0.02)
    other = runs.submit(counting(1), owner="b")
    assert runs.get(old) is None
    assert runs.get(kept).state is State.RUNNING
    gate.release()
    ended(runs, other)


CLOSED = """
import sys
from pathlib import Path
from tests.core.test_runs import counting, until
from core.runs import Runs

runs = Runs(Path(sys.argv[1]))
run_id = runs.submit(counting(10**9), owner="a")
until(lambda: runs.get(run_id).step)
print(run_id)
"""


def test_a_server_that_ends_saves_what_runs(tmp_path):
    server = subprocess.run(
        [sys.executable, "-c", CLOSED, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    assert server.returncode == 0
    run = Runs(tmp_path).get(server.stdout.strip())
    assert run.state is State.STOPPED
    assert (run.result / "last").read_text() == f"came to {run.step}"


KILLED = """
import sys, time
from pathlib import Path
from tests.core.test_runs import counting
from core.runs import Job, Runs

def slow(stop):
    for step in range(1, 10**6):
        time.sleep(0.01)
        yield step

job = counting(10**6)
runs = Runs(Path(sys.argv[1]))
print(runs.submit(Job("counting", 10**6, slow, job.record, job.save, {"a": 1}), owner="a"))
print(runs.submit(counting(1), owner="b"), flush=True)
time.sleep(60)
"""


def test_a_killed_server_leaves_what_was_recorded(tmp_path):
    server = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    running, queued = (server.stdout.readline().strip() for _ in range(2))
    history = tmp_path / running / "history.jsonl"
    until(lambda: history.is_file() and history.read_text().count("\n") > 3)
    assert Runs(tmp_path).get(running).state is State.RUNNING  # of another server, which lives
    server.send_signal(signal.SIGKILL)
    server.communicate()
    with history.open("a") as lines:
        lines.write('{"event": "st')  # the line it was killed in
    runs = Runs(tmp_path)
    run = runs.get(running)
    assert run.state is State.INTERRUPTED
    assert [record["step"] for record in run.records] == list(range(1, len(run.records) + 1))
    assert len(run.records) > 3
    assert run.about == {"a": 1}
    assert runs.get(queued).state is State.INTERRUPTED
    assert ended(runs, runs.submit(counting(1), owner="a")).state is State.DONE


def test_a_reader_never_finds_half_of_a_state(tmp_path):
    runs = Runs(tmp_path)
    run_id = runs.submit(counting(200), owner="a")
    while not runs.get(run_id).state.over:
        json.loads((tmp_path / run_id / "run.json").read_text())
    assert len(read_records(tmp_path / run_id / "history.jsonl")) == 200
