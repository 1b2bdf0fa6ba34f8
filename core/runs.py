"""Background runs: start, queue, watch, stop, save, find again.

A run is a generator of events that a worker of this server consumes; what the events mean is the
job's own affair. Everything that is shown of a run comes from its folder, which is written as the
events come, so that a run survives the visitor's page, and what was recorded survives the server:

    <id>/run.json        what was asked for, and the state; replaced as a whole
    <id>/history.jsonl   a record an event, appended
    <id>/result/         what the job saved; put in place as a whole
    <id>/.lock           held by the server that works on the run, freed by the system if it dies

An id is 128 random bits: whoever has it may watch and stop the run, and it can't be guessed.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from core.errors import ClozeError, SettingError

logger = logging.getLogger(__name__)

Record = dict[str, Any]


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # its server ended before it did

    @property
    def over(self) -> bool:
        return self not in (State.QUEUED, State.RUNNING)


@dataclass(frozen=True)
class Job:
    """What a run does. `start` gets a function that says whether to stop, asked after each step."""

    kind: str  # "pretraining", "finetuning": which page can show it
    steps: int
    start: Callable[[Callable[[], bool]], Iterator[Any]]  # the last event carries the result
    record: Callable[[Any], Record | None]  # an event as plain data; None is not recorded
    save: Callable[[Any, Path], None]  # the last event into a folder
    about: Record = field(default_factory=dict)  # settings and data to show, as plain data


@dataclass(frozen=True)
class Run:
    """A run as it stands at one moment."""

    id: str
    kind: str
    about: Record
    state: State
    steps: int
    records: list[Record]  # in the order of the events
    ahead: int = 0  # runs that come first, while it is queued
    error: str | None = None  # one sentence, if it failed
    seconds: float = 0.0  # since it began to run, until its end
    result: Path | None = None  # folder of what it saved

    @property
    def measured(self) -> bool:
        """Whether anything was measured yet, beside the losses of steps."""
        return any(record["event"] not in ("step", "diverged") for record in self.records)

    @property
    def diverged(self) -> Record | None:
        """The record of a loss that was no longer a number."""
        return next((r for r in reversed(self.records) if r["event"] == "diverged"), None)

    @property
    def step(self) -> int:
        return max((record.get("step", 0) for record in reversed(self.records[-9:])), default=0)

    @property
    def seconds_left(self) -> float | None:
        """By its pace so far; None before the first step."""
        return self.seconds / self.step * (self.steps - self.step) if self.step else None


@dataclass
class _Active:
    """A run that this server has still to finish."""

    id: str
    job: Job
    owner: str
    lock: FileLock
    records: list[Record] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    state: State = State.QUEUED
    began: float = 0.0
    error: str | None = None


class Runs:
    """The runs of a server under one folder, at most `at_once` of them at work."""

    def __init__(self, folder: Path, *, at_once: int = 1, keep_hours: float = 7 * 24) -> None:
        self._folder, self._keep_hours = folder, keep_hours
        self._waiting: list[_Active] = []
        self._active: dict[str, _Active] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._workers = [
            threading.Thread(target=self._work, name=f"run-{number}", daemon=True)
            for number in range(at_once)
        ]
        for worker in self._workers:
            worker.start()
        atexit.register(self.close)

    def submit(self, job: Job, *, owner: str) -> str:
        """Queue a job; gives its id. An owner has one unfinished run at a time."""
        self._forget_old()
        with self._changed:
            if any(active.owner == owner for active in self._active.values()):
                raise SettingError("A run of yours is at work already: stop it or let it end.")
            active = self._create(job, owner)
            self._active[active.id] = active
            self._waiting.append(active)
            self._changed.notify()
        return active.id

    def get(self, run_id: str) -> Run | None:
        """A run of this or of an earlier server, as it stands now."""
        if not re.fullmatch(r"[0-9a-f]{32}", run_id):
            return None
        with self._changed:
            active = self._active.get(run_id)
            if active is not None:
                return self._snapshot(active)
        return read_run(self._folder / run_id)

    def stop(self, run_id: str) -> None:
        """Ask a run to end: within one step if it is running, at once if it is queued."""
        with self._changed:
            active = self._active.get(run_id)
            if active is None:
                return
            active.stop.set()
            if active in self._waiting:
                self._waiting.remove(active)
                self._end(active, State.STOPPED)

    def close(self, seconds: float = 10.0) -> None:
        """Stop what runs, saving what it has, and wait for it; called as the server ends.

        An interpreter that ends while a thread is inside torch aborts.
        """
        with self._changed:
            self._closed = True
            for active in self._active.values():
                active.stop.set()
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(seconds)

    def _create(self, job: Job, owner: str) -> _Active:
        run_id = uuid.uuid4().hex
        folder = self._folder / run_id
        folder.mkdir(parents=True)
        lock = FileLock(folder / ".lock", thread_local=False)  # taken here, given up by the worker
        lock.acquire()
        active = _Active(run_id, job, owner, lock)
        self._write(active)
        return active

    def _work(self) -> None:
        _give_way()
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                active = self._waiting.pop(0)
                active.state, active.began = State.RUNNING, time.time()
                self._write(active)
            state = self._execute(active)
            with self._changed:
                self._end(active, state)
            del active  # and with it the job's data and the model it trained

    def _execute(self, active: _Active) -> State:
        """Run a job to its end; the state it ended in."""
        try:
            for record in _recorded(active.job, self._folder / active.id, active.stop.is_set):
                active.records.append(record)
        except ClozeError as error:
            active.error = str(error)
        except Exception:
            logger.exception("run %s failed", active.id)
            active.error = "It ended with an unexpected error, which the server's log describes."
        if active.error is not None:
            return State.FAILED
        return State.STOPPED if active.stop.is_set() else State.DONE

    def _end(self, active: _Active, state: State) -> None:
        active.state = state
        self._write(active)
        del self._active[active.id]
        active.lock.release()

    def _write(self, active: _Active) -> None:
        seconds = time.time() - active.began if active.began else 0.0
        folder = self._folder / active.id
        _write_state(folder, active.job, active.state, seconds, active.error)

    def _snapshot(self, active: _Active) -> Run:
        return Run(
            id=active.id,
            kind=active.job.kind,
            about=active.job.about,
            state=active.state,
            steps=active.job.steps,
            records=list(active.records),
            ahead=self._ahead(active),
            error=active.error,
            seconds=time.time() - active.began if active.began else 0.0,
        )

    def _ahead(self, active: _Active) -> int:
        if active not in self._waiting:
            return 0
        running = len(self._active) - len(self._waiting)
        return running + self._waiting.index(active)

    def _forget_old(self) -> None:
        """Delete the folders of runs that ended long ago."""
        oldest = time.time() - self._keep_hours * 3600
        for told in self._folder.glob("*/run.json"):
            if told.stat().st_mtime < oldest and _free(told.parent):
                shutil.rmtree(told.parent, ignore_errors=True)


def run_here(job: Job, folder: Path) -> Iterator[Record]:
    """Run a job in this thread, under a folder as a server would leave it; gives its records."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "history.jsonl").unlink(missing_ok=True)
    shutil.rmtree(folder / "result", ignore_errors=True)
    began = time.time()
    yield from _recorded(job, folder, lambda: False)
    _write_state(folder, job, State.DONE, time.time() - began, None)


def _recorded(job: Job, folder: Path, stop: Callable[[], bool]) -> Iterator[Record]:
    """Consume the events of a job, record them, save the result."""
    last = None
    with (folder / "history.jsonl").open("a", encoding="utf-8") as history:
        for last in job.start(stop):
            record = job.record(last)
            if record is not None:
                history.write(json.dumps(record) + "\n")
                history.flush()
                yield record
    partial = folder / "result.partial"
    job.save(last, partial)
    partial.replace(folder / "result")


def _write_state(folder: Path, job: Job, state: State, seconds: float, error: str | None) -> None:
    """Replace run.json as a whole, so that no reader finds half of it."""
    told = {
        "kind": job.kind,
        "steps": job.steps,
        "state": state,
        "error": error,
        "seconds": seconds,
        "about": job.about,
    }
    partial = folder / "run.json.partial"
    partial.write_text(json.dumps(told), encoding="utf-8")
    partial.replace(folder / "run.json")


def read_records(path: Path) -> list[Record]:
    """The records of a history; a last line that a dying server left unfinished is passed over."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def read_run(folder: Path) -> Run | None:
    """A run from its folder, if it is one that this server does not work on."""
    try:
        told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    state = State(told["state"])
    if not state.over and _free(folder):
        state = State.INTERRUPTED
    result = folder / "result"
    return Run(
        id=folder.name,
        kind=told["kind"],
        about=told["about"],
        state=state,
        steps=told["steps"],
        records=read_records(folder / "history.jsonl"),
        error=told["error"],
        seconds=told["seconds"],
        result=result if result.is_dir() else None,
    )


def _free(folder: Path) -> bool:
    """Whether no server works on the run of a folder."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            return True
    except Timeout:
        return False


def _give_way() -> None:
    """Let visitors' pages go before training: on Linux a thread has a priority of its own.

    The threads that torch starts from here inherit it.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
