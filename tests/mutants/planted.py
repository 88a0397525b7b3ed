"""All planted bugs."""

from tests.mutants.boxes import BOXES
from tests.mutants.composed import COMPOSITION
from tests.mutants.expired import EXPIRED
from tests.mutants.failing import FAILURES
from tests.mutants.functions import FUNCTIONS
from tests.mutants.jobs import JOBS
from tests.mutants.joins import JOINS
from tests.mutants.kept_back import KEPT_BACK
from tests.mutants.loops import LOOPS
from tests.mutants.ordered import ORDERED
from tests.mutants.orders import ORDERS
from tests.mutants.page import PAGE
from tests.mutants.points import POINTS
from tests.mutants.protobuf import PROTOBUF
from tests.mutants.protocol import PROTOCOL
from tests.mutants.put_back import PUT_BACK
from tests.mutants.rebuilt import REBUILT
from tests.mutants.rim import RIM
from tests.mutants.robust import ROBUST
from tests.mutants.why import WHY

MUTANTS = [
    *(*PROTOCOL, *BOXES, *RIM, *FUNCTIONS, *JOBS, *JOINS, *ORDERS, *FAILURES),
    *(*ORDERED, *LOOPS, *REBUILT, *EXPIRED, *PUT_BACK, *ROBUST, *COMPOSITION, *KEPT_BACK, *POINTS),
    *PAGE,
    *PROTOBUF,
    *WHY,
]
