"""What a process of tasks imports: a package that it does not need costs time at every start."""

import subprocess
import sys

SCRIPT = """
import sys
from errata import Network, tumbling
from errata.testing import Driver

net = Network("slim")
fields = {"key": "string", "at": "timestamp-millis", "price": "decimal(18,2)?", "new": "boolean"}
trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
trades.aggregate("sums", by=["new"], window=tumbling("1s"), total="sum(price)", keep="1d")
with Driver(net) as driver:
    for number, price in enumerate(["1.50", None, "2.50"]):
        after = {"key": f"k{number}", "at": 1000 * number, "price": price, "new": True}
        driver.send("trades", {"op": "insert", "after": after})
        driver.close_epoch()
    assert driver.table("sums")
print(*{"pandas", "pyarrow.dataset", "pyspark"} & sys.modules.keys())
"""


def test_a_task_imports_neither_pandas_nor_spark():
    command = [sys.executable, "-c", SCRIPT]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (completed.stdout.strip(), completed.stderr, completed.returncode) == ("", "", 0)
