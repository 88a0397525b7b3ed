"""Bugs in connection points that come and go."""

from tests.mutants.mutant import Mutant

LAWS = "tests/laws/test_connection_points.py"

POINTS = [
    Mutant(
        "a new connection point begins without history",
        "errata/run/switch.py",
        "if arc not in old.kept_ms or new.deployment.topic(arc) != old.deployment.topic(arc)",
        "if arc in old.kept_ms and new.deployment.topic(arc) != old.deployment.topic(arc)",
        tests=LAWS,
    ),
    Mutant(
        "a new connection point holds the results of windows that are still open",
        "errata/run/switch.py",
        "anchors, arc, wm=lambda box: firsts.watermark(plan.topology.scope_of(box))",
        "anchors, arc, wm=lambda box: firsts.watermark(plan.topology.scope_of(box)) + 2**40",
        tests=LAWS,
    ),
    Mutant(
        "a new connection point keeps the topic that it had without history",
        "errata/deploy/versions.py",
        "changed |= {arc for arc in _toggled(old, new) if arc in new.topology.topics}",
        "changed |= {arc for arc in _toggled(old, new) if arc not in new.topology.topics}",
        tests=LAWS,
    ),
]
