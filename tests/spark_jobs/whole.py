"""The demo's network wholly on Spark; its totals are computed twice, in two jobs."""

from dataclasses import replace

from errata import Network
from errata.demo import bars
from errata.processors.declare.declarations import Aggregate

net = Network("tape", dict(bars.net.declarations), list(bars.net.sinks), place="spark")

for name, box in bars.net.declarations.items():
    if isinstance(box, Aggregate):
        box = replace(box, mode="adaptive")
    net.declarations[name] = replace(box, place_of_work="spark")
