"""Bugs in what tasks read, accept, report and resume from."""

from tests.mutants.mutant import IDLE, RANDOM, Mutant

PROTOCOL = [
    Mutant(
        "a window closes one watermark late",
        "processors/boxes/aggregate.py",
        "return (ends <= wm) | self.on_update",
        "return (ends < wm) | self.on_update",
    ),
    Mutant(
        "a maximum that is lowered while its window is open is not replayed",
        "processors/boxes/aggregate.py",
        "inexact = after.filter(~self.exact(after)).select(self.keys)",
        "inexact = after.filter(~self.exact(after) & was_due).select(self.keys)",
        network=RANDOM,
    ),
    Mutant(
        "a replay through an aggregate does not reach back",
        "processors/boxes/replay.py",
        'pl.col("from_ms").clip(lower_bound=extent_ms - FOREVER_MS) - extent_ms',
        'pl.col("from_ms").clip(lower_bound=extent_ms - FOREVER_MS)',
        network="chain-False",
    ),
    Mutant(
        "resume where reading was, not at the oldest unprocessed record",
        "processors/arcs/arc_topic.py",
        "return min([*oldest, self.cursor.position, end])",
        "return self.cursor.position",
    ),
    Mutant(
        "a reader that starts within what another has read is given all of that",
        "processors/arcs/arc_topic.py",
        "return self.is_alive and self.start <= offset <= self.end",
        "return self.is_alive and offset <= self.end",
    ),
    Mutant(
        "a slow reader goes on where a fast one is",
        "processors/arcs/arc_topic.py",
        "if chunk.last >= self.position and sum(len(c.records) for c in chunks) < limit:",
        "if chunk is feed.chunks[-1] and chunk.last >= self.position:",
    ),
    Mutant(
        "a new life keeps its predecessor's number",
        "processors/tasks/task.py",
        "claimed = replace(old, attempt=old.attempt + 1, ",
        "claimed = replace(old, attempt=max(old.attempt, 1), ",
    ),
    Mutant(
        "a batch forgets that an identity was alive before it",
        "processors/ingest/intake.py",
        'alive.shift(1).forward_fill().over(KEY).fill_null(pl.col("held")).alias("alive")',
        'alive.shift(1).forward_fill().over(KEY).fill_null(False).alias("alive")',
    ),
    Mutant(
        "a tuple that moves stays in its old partition as well",
        "processors/arcs/partitioner.py",
        'moved = (revisions["op"] == frames.REPLACE) & (before != after)',
        'moved = (revisions["op"] == frames.REPLACE) & (before > after)',
    ),
    Mutant(
        "the watermark is the fastest partition's",
        "processors/reports/frontiers.py",
        "return min(known, default=NEVER)",
        "return max(known, default=NEVER)",
    ),
    Mutant(
        "a lone writer's records count as committed without a report",
        "processors/reports/progress_view.py",
        'return revisions.filter(pl.col("epoch") <= last[0])',
        "return revisions",
    ),
    Mutant(
        "what was emitted in the same transaction is forgotten",
        "processors/tasks/scope_run.py",
        "self._newer = [(run.boxes[name].stored, own.uncommitted.get(name, []))]",
        "self._newer = [(run.boxes[name].stored, [])]",
    ),
    Mutant(
        "a copy is complete where some writers have reported",
        "processors/reports/progress_view.py",
        "return min(self.frontier(writer) for writer in writers), end",
        "return max(self.frontier(writer) for writer in writers), end",
    ),
    Mutant(
        "a task whose windows are open is taken to be as far as what it reads",
        "processors/reports/frontiers.py",
        "return self.closing(task, after=done)",
        "return None",
    ),
    Mutant(
        "what a task has not read does not hold it back",
        "processors/reports/frontiers.py",
        "if max(epoch, report.rebuilt) > done:",
        "if max(epoch, report.rebuilt) < done:",
    ),
    Mutant(
        "pairs are forgotten, and what the watermark had been with them",
        "processors/ingest/ingest_task.py",
        "if len(kept) < len(pairs):",
        "if len(kept) > len(pairs):",
        network=IDLE,
    ),
    Mutant(
        "a part of an answer passes for the whole one",
        "processors/tasks/replay_client.py",
        "self.is_whole = self.left.is_empty()",
        "self.is_whole = True",
    ),
    Mutant(
        "ranges that were cut go on a millisecond after where they were cut",
        "processors/tasks/replay_client.py",
        'pl.max_horizontal("from_ms", pl.lit(upto_ms))',
        'pl.max_horizontal("from_ms", pl.lit(upto_ms + 1))',
    ),
    Mutant(
        "a task's own new tuples come with every part of an answer",
        "processors/tasks/scope_run.py",
        "parts[number] = without_revised(tuples, *self._newer[number])",
        "parts[number] = overlay(tuples, *self._newer[number])",
        network=RANDOM,
    ),
]
