"""A process that writes reports which are not true to a network's progress topic."""

from dataclasses import replace
from typing import Any

from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View
from errata.processors.wire import report as reports
from errata.processors.wire.report import Report
from errata.schemas import framing
from errata.topics import names
from errata.topics.cluster import Cluster
from errata.topics.registry import SchemaRegistry


class Rogue:
    """Tells lies, each made of what the task has reported last.

    Args:
        cluster: Where the network runs.
        plan: What runs.
    """

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.cluster, self.view = cluster, View(cluster, plan=plan)
        self.topic = names.progress_topic(plan.network)
        registry = SchemaRegistry(cluster)
        self.schema_id = registry.register(f"{self.topic}-value", reports.SCHEMA)

    def honest(self, task: str) -> Report:
        """Return what a task has told last that is true."""
        self.view.catch_up()
        return self.view.of(task)

    def lie(self, task: str, *, later: int = 0, **more: Any) -> Report:
        """Report in the name of a task.

        Args:
            task: The task, which may be one that is not there.
            later: By how many epochs it claims to be further than it is.
            more: What is not as in its last report.
        """
        last = self.honest(task)
        told = replace(last, done=last.done + later, **more)
        value = framing.frame([reports.encode(told)], self.schema_id)[0]
        self.cluster.send(self.topic, partition=0, key=task.encode(), value=value)
        self.cluster.flush()
        return told
