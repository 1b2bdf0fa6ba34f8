"""Runs the two sides of a comparison in processes of their own, in turn, and tells their ratio."""

import json
import resource
import statistics
import subprocess
import sys


def measured(module, side, seed):
    """What one side prints last, as JSON, from a fresh process."""
    command = [sys.executable, "-W", "ignore", "-m", module, side, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def tell(**figures):
    """Print the figures of a side, with the most memory that its process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**figures, "peak_mb": round(peak)}))


def compare(module, seeds, unit):
    """Both sides for each seed; prints each pair and gives ours, theirs and the ratios."""
    ours, theirs = [], []
    for seed in seeds:
        ours.append(measured(module, "ours", seed))
        theirs.append(measured(module, "theirs", seed))
        print(f"seed {seed}: {ours[-1]} against {theirs[-1]}", flush=True)
    ratios = [a["speed"] / b["speed"] for a, b in zip(ours, theirs, strict=True)]
    peaks = [max(side["peak_mb"] for side in both) for both in (ours, theirs)]
    print(
        f"{unit} a second: {statistics.median(ratios):.2f}x Trainer's "
        f"({min(ratios):.2f} to {max(ratios):.2f}); peak memory {peaks[0]} and {peaks[1]} MB"
    )
    return ours, theirs, ratios
