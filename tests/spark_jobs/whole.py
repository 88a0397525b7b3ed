"""The demo's network with all boxes on Spark; its totals are computed twice, in two jobs."""

from dataclasses import replace

from errata import Network
from errata.demo import bars
from errata.processors.declare.declarations import Aggregate

net = Network("tape", dict(bars.net.declarations), list(bars.net.sinks), place="spark")

for name, box in bars.net.declarations.items():
    if isinstance(box, Aggregate):
        net.declarations[name] = replace(box, place_of_work="spark", mode="adaptive")
