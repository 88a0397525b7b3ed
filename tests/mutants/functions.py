"""Bugs in aggregate functions, and in users' functions."""

from tests.mutants.mutant import RANDOM, Mutant

FUNCTIONS = [
    Mutant(
        "the largest value's ties are not counted down",
        "processors/aggregates/extreme.py",
        "np.full(len(group), sign),",
        "np.full(len(group), max(sign, 0)),",
    ),
    Mutant(
        "averages of decimals are rounded down",
        "processors/aggregates/sums.py",
        "up = (left > count) | ((left == count) & (down >= whole(0)))",
        "up = (left > count) & (left < count)",
    ),
    Mutant(
        "first goes by event time, whatever it is to go by",
        "processors/compile/aggregate.py",
        "self._ordering(self.order_by, visible(self.above)) if self.order_by else by_time",
        "self._ordering(self.order_by, visible(self.above)) and by_time",
        network=RANDOM,
    ),
    Mutant(
        "the last of many is the first in no order but the first key's",
        "processors/aggregates/extreme.py",
        "return [Key(key.type, not key.largest) for key in order]",
        "return [Key(k.type, (not k.largest) ^ (n > 0)) for n, k in enumerate(order)]",
        network=RANDOM,
    ),
    Mutant(
        "the square of what leaves is not taken off",
        "processors/aggregates/moments.py",
        "np.tile(index, len(terms)), sign * np.concatenate(terms), states.height",
        "np.tile(index, len(terms)), sign ** len(terms) * np.concatenate(terms), states.height",
        network=RANDOM,
    ),
    Mutant(
        "a filtered function lets tuples leave that never entered",
        "processors/boxes/states.py",
        "passing = self.condition.evaluate(tuples)[rows]",
        "passing = self.condition.evaluate(tuples)[rows] | (sign < 0)",
        network=RANDOM,
    ),
    Mutant(
        "an expression around calls takes them from right to left",
        "processors/boxes/states.py",
        "for number, (column, _) in enumerate(emitted_values)}",
        "for number, (column, _) in enumerate(reversed(emitted_values))}",
        network=RANDOM,
    ),
    Mutant(
        "a user's function is believed where it says that it is not exact",
        "processors/boxes/states.py",
        "return self.function.exact(self.parts(states))",
        "return pl.repeat(True, states.height, dtype=pl.Boolean, eager=True)",
        network=RANDOM,
    ),
    Mutant(
        "a sum of nothing but nulls is 0",
        "processors/aggregates/totals.py",
        'return fitting(total, MAX_PRECISION).set(states["count"] == 0, None)',
        "return fitting(total, MAX_PRECISION)",
        network=RANDOM,
    ),
    Mutant(
        "nulls are counted",
        "processors/aggregates/sums.py",
        "groups, _ = drop_nulls(groups, values.to_series(0))",
        "_, groups = drop_nulls(values.to_series(0), groups)",
        network=RANDOM,
    ),
    Mutant(
        "min_by takes tuples without a key",
        "processors/aggregates/calls.py",
        "return First(value, (Key(key, largest), *call.order), needs_key=True)",
        "return First(value, (Key(key, largest), *call.order), needs_key=False)",
        network=RANDOM,
    ),
    Mutant(
        "a sample's deviation is its population's",
        "processors/aggregates/variance.py",
        "divisor = map(operator.sub, count, repeat(int(self.sample)))",
        "divisor = map(operator.sub, count, repeat(int(self.sample and not self.root)))",
        network=RANDOM,
    ),
    Mutant(
        "what is true is not counted down when it leaves",
        "processors/aggregates/sums.py",
        "count_rows(groups.filter(truths), states.height),",
        "count_rows(groups.filter(truths & (sign > 0)), states.height),",
        network=RANDOM,
    ),
    Mutant(
        "a Python function gets its arguments in the order of the alphabet",
        "processors/expressions/opaque.py",
        "types = {name: fields[name] for name in self.arguments}",
        "types = {name: fields[name] for name in sorted(self.arguments)}",
        network=RANDOM,
    ),
]
