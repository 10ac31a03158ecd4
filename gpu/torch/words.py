"""The lines that `berth bench colocate` and a program say to each other; crates/berth-load/src/roles/words.rs describes them."""

import json
import queue
import sys
import threading
import time


class Input:
    """Standard input, read by a thread of its own so that a program at work can look."""

    def __init__(self):
        self._lines = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in sys.stdin:
            self._lines.put(line.split())
        self._lines.put(None)

    def next(self):
        """Waits for the next word, as its parts; None at the end."""
        word = self._lines.get()
        if word is None:
            self._lines.put(None)
        return word

    def has_come(self):
        """Whether a line has come, or the end; that line is taken."""
        if self._lines.empty():
            return False
        self.next()
        return True


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def percentile(ordered, percent):
    """Nearest rank: the least value that so many percent of all do not exceed."""
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[rank - 1]


def latencies(rate, window_ns, values_ms, given_up, first_ms, queued_ms):
    values_ms.sort()
    say(
        "served",
        rate=rate,
        from_ns=window_ns[0],
        to_ns=window_ns[1],
        requests=len(values_ms),
        given_up=given_up,
        mean_ms=sum(values_ms) / len(values_ms),
        p50_ms=percentile(values_ms, 50),
        p90_ms=percentile(values_ms, 90),
        p99_ms=percentile(values_ms, 99),
        max_ms=values_ms[-1],
        first_ms=percentile(sorted(first_ms), 50) if first_ms else None,
        queued_ms=percentile(sorted(queued_ms), 50) if queued_ms else None,
    )


def now_ns():
    """The clock that all processes of a host share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
