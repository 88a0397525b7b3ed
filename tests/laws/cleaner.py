"""The broker's log cleaner: compacts everything that all readers' frontiers have passed."""

from collections.abc import Iterable

from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from tests.laws.history import History
from tests.laws.process import Process


class Cleaner:
    """Compacts the connection points and the progress topic.

    Args:
        cluster: The cluster of the topics.
        plan: The plan that names them.
        history: Reads the records before they are cleaned.
    """

    def __init__(self, cluster: MemoryCluster, plan: CompiledPlan, history: History) -> None:
        self.cluster, self.plan, self.history = cluster, plan, history
        self.view = View(cluster, plan=plan)

    def clean(self, processes: Iterable[Process], *, all_passed: bool = False) -> int:
        """Clean once; return how many revisions were removed.

        Args:
            processes: The processes, including those that are down.
            all_passed: Whether no process reads any more.
        """
        self.history.read()
        self.view.poll()
        known, gone = list(processes), 0
        for arc in filter(self.history.arcs.__contains__, self.plan.kept_ms):
            places = self.history.arcs[arc]
            before = sum(len(self.cluster.log(place).read(0, 2**40)[0]) for place in places)
            horizons = [
                2**40 if all_passed else self._horizon(arc, place, known) for place in places
            ]
            self.cluster.compact(self.plan.deployment.topic(arc), horizons=horizons)
            gone += before
            gone -= sum(len(self.cluster.log(place).read(0, 2**40)[0]) for place in places)
        self.cluster.compact(self.history.progress.topic, horizons=[2**40])
        return gone

    def _horizon(self, arc: str, place: TopicPartition, processes: list[Process]) -> int:
        """Return the offset of the oldest record that some reader or asking task has not passed."""
        plan, partition = self.plan, place.partition
        writer = plan.topology.scope_of(arc)
        starting = any(
            not task.started and task.name.rpartition(".")[0] == writer
            for process in processes
            for task in process.tasks
        )
        if starting:
            return 0
        passed = [
            self.view.of(task).done
            for scope in plan.topology.scopes.values()
            if arc in plan.replayed_points_of(scope)
            for task in plan.placement.tasks(scope.name)
        ]
        passed += [
            self.view.frontier(f"{scope}.{partition}") for scope in plan.topology.readers(arc)
        ]
        passed += [
            sweeper.store.sealed
            for process in processes
            for sweeper in process.sweepers
            if (sweeper.arc.name, sweeper.partition) == (arc, partition)
        ]
        behind = min(passed, default=2**62)
        rows = self.history.rows[place]
        newer = (row.offset for row in rows if row.content and row.content["epoch"] > behind)
        return next(newer, 2**40)
