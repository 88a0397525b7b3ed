"""Bugs in what the page tells, and to whom."""

from tests.mutants.mutant import Mutant

LIVE, SERVER = "tests/errata/page/test_live.py", "tests/errata/page/test_server.py"
LETTERS, FEEDING = "tests/errata/cli/test_dead_letters.py", "tests/errata/client/test_feeding.py"

PAGE = [
    Mutant(
        "a result of a window that had closed without one is no correction",
        "errata/client/corrections.py",
        "is_final |= (revisions[frames.AFTER + END] <= passed_ms).fill_null(False)",
        "is_final |= (revisions[frames.AFTER + END] < -(2**62)).fill_null(False)",
        tests=LIVE,
    ),
    Mutant(
        "a first result is a correction",
        "errata/client/corrections.py",
        'is_final, has_windows = revisions["op"] != frames.INSERT, closes(plan, arc.name)',
        'is_final, has_windows = revisions["op"] >= 0, closes(plan, arc.name)',
        tests=LIVE,
    ),
    Mutant(
        "what a box has looked back for is that of all time",
        "errata/client/corrections.py",
        "CountKey.parse(text): count - known.counts.get(text, 0)",
        "CountKey.parse(text): count + known.counts.get(text, 0)",
        tests=LIVE,
    ),
    Mutant(
        "a browser that has missed messages is told the last ones",
        "errata/page/live.py",
        "if last is None or len(missed) < self._number - last:",
        "if last is None:",
        tests=LIVE,
    ),
    Mutant(
        "corrections that are left out are not counted",
        "errata/page/live.py",
        "self._left_out += count - len(corrections)",
        "self._left_out += 0",
        tests=LIVE,
    ),
    Mutant(
        "characters that change the order of others are shown",
        "errata/client/escaping.py",
        'c if c.isprintable() or c == "\\n" else repr(c)[1:-1]',
        "c",
        tests=LIVE,
    ),
    Mutant(
        "any site's name is answered",
        "errata/page/guard.py",
        "if self.hosts and host not in self.hosts:",
        "if self.hosts and not host:",
        tests=SERVER,
    ),
    Mutant(
        "another site's page can send dead letters",
        "errata/page/guard.py",
        "if OURS not in headers:",
        'if OURS == "":',
        tests=SERVER,
    ),
    Mutant(
        "whoever asks may write",
        "errata/page/guard.py",
        "if not self.allow_writes:",
        "if not self.allow_writes and self.token:",
        tests=SERVER,
    ),
    Mutant(
        "a wrong token is as good as the right one",
        "errata/page/guard.py",
        "return hmac.compare_digest(given.encode(), self.token.encode())",
        "return bool(given)",
        tests=SERVER,
    ),
    Mutant(
        "refusals have no headers",
        "errata/page/guard.py",
        "await (self.app if refusal is None else refusal)(scope, receive, with_headers)",
        "await (self.app(scope, receive, with_headers) if refusal is None else "
        "refusal(scope, receive, send))",
        tests=SERVER,
    ),
    Mutant(
        "a dead letter is acknowledged with those before it",
        "errata/client/dead_letters.py",
        "done = {offset for offset in known if offset in self} | {*offsets}",
        "done = {o for o in known if o in self or o <= max(offsets, default=-1)}",
        tests=LETTERS,
    ),
    Mutant(
        "an epoch of a file runs into the next one",
        "errata/client/feeding.py",
        "        if has_lines:\n            self._rest(self.pause_s)",
        "        if has_lines:\n            self._rest(0)",
        tests=FEEDING,
    ),
    Mutant(
        "an identity that comes again does not end the epoch before it",
        "errata/client/input_file.py",
        "cut = min(int(own[0]) + start if own.size else count, first)",
        "cut = min(int(own[0]) + start + 1 if own.size else count, first)",
        tests="tests/errata/client/test_input_file.py",
    ),
]
