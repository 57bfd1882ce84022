"""Every decision again from evidence alone: equal on any machine; one flipped bit anywhere is found and named."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from reachline.core import freeze
from reachline.core import rules as core_rules
from reachline.core.ledger import Ledger
from reachline.errors import JournalError
from reachline.model import Scope
from reachline.store.journal import Journal, recover
from reachline.store.records import (
    Bodies,
    Members,
    Opened,
    Ordered,
    Outcomes,
    Reconfigured,
    Record,
    Reported,
    Ticked,
    Undone,
)
from reachline.store.replay import Difference, replay
from reachline.store.segment import Segment, discard, listed, seal
from reachline.testing.storm import Tick, act, begin, perform

SOURCE = Path(__file__).parents[2] / "src"
SEED = 5
ACTS = 400


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of several segments with hundreds of decisions; tests that alter it work on a copy."""
    directory = tmp_path_factory.mktemp("recorded") / "journal"
    journal = Journal.open(directory, segment=60, resume=20)
    ledgers = begin(journal.epoch)
    journal.follow(ledgers)
    blow(journal, ledgers, range(ACTS))
    journal.close()
    return directory


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "copy"))


def blow(journal: Journal, ledgers: Mapping[Scope, Ledger], numbers: range) -> None:
    for number in numbers:
        done = act(SEED, number, number * 500)
        if isinstance(done, Tick):
            journal.append(perform(ledgers, done))
        else:
            journal.append(done)
            perform(ledgers, done)


def alter(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def rows(path: Path, query: str) -> list[tuple[int, bytes]]:
    connection = sqlite3.connect(path)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def reseal(directory: Path) -> None:
    """Make every seal fit again, as a forger would who knows how; the decisions then speak for themselves."""
    chain = None
    for path in listed(directory):
        with Segment(path) as segment:
            start, stored = segment.meta, list(segment.records())
        chain = start.chain if chain is None else chain
        alter(
            path, "UPDATE meta SET body = ?", msgspec.json.encode(msgspec.structs.replace(start, chain=chain)).decode()
        )
        seals = []
        for one in stored:
            chain = seal(chain, (one.seq, one.kind, one.at_ms), one.scope, one.body)
            seals.append((chain, one.seq))
        connection = sqlite3.connect(path)
        connection.executemany("UPDATE records SET seal = ? WHERE seq = ?", seals)
        connection.commit()
        connection.close()


def test_replay_recomputes_every_decision_of_every_segment(recorded: Path) -> None:
    done = replay(recorded)

    assert done.difference is None
    assert (done.segments, done.gaps) == (len(listed(recorded)), 0)
    assert (done.segments >= 3, done.ticks >= 80, done.decisions >= 100) == (True, True, True)


def test_each_segment_replays_alone(recorded: Path) -> None:
    done = [replay(path) for path in listed(recorded)]

    assert [one.difference for one in done] == [None] * len(done)
    assert sum(one.ticks for one in done) == replay(recorded).ticks


@pytest.mark.parametrize("chance", range(12))
def test_one_flipped_bit_anywhere_in_a_record_is_found_and_its_record_named(copy: Path, chance: int) -> None:
    rng = Random(chance)
    path = rng.choice(listed(copy))
    seq, body = rng.choice(rows(path, "SELECT seq, body FROM records WHERE length(body) > 0"))
    flipped = bytearray(body)
    flipped[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    alter(path, "UPDATE records SET body = ? WHERE seq = ?", bytes(flipped), seq)

    found = replay(copy).difference

    assert found is not None
    assert (found.segment, found.seq, found.field) == (path.name, seq, "evidence")
    assert str(found) == f"{path.name}: evidence of seq {seq} was altered: its seal does not match"


@pytest.mark.parametrize("column", ["at_ms", "kind"])
def test_a_moved_time_or_another_kind_breaks_the_seal_too(copy: Path, column: str) -> None:
    alter(listed(copy)[1], f"UPDATE records SET {column} = {column} + 1 WHERE seq = (SELECT max(seq) FROM records)")

    found = replay(copy).difference

    assert found is not None
    assert found.field == "evidence"


def test_a_removed_record_breaks_the_chain_in_the_middle_and_at_the_end(copy: Path) -> None:
    path = listed(copy)[0]
    alter(path, "DELETE FROM records WHERE seq = (SELECT max(seq) FROM records)")
    at_the_end = replay(copy).difference
    alter(path, "DELETE FROM records WHERE seq = (SELECT max(seq) - 5 FROM records)")
    in_the_middle = replay(copy).difference

    assert at_the_end is not None
    assert (at_the_end.field, at_the_end.segment) == ("removed", listed(copy)[1].name)
    assert in_the_middle is not None
    assert (in_the_middle.field, in_the_middle.segment) == ("evidence", path.name)


def forged(copy: Path, forge: Callable[[Ticked], Ticked]) -> tuple[Ticked, Difference]:
    """The first decision with a cut in weight, changed by `forge` and sealed anew; what replay says."""
    for path in listed(copy):
        for seq, body in rows(path, "SELECT seq, body FROM records WHERE kind = 7 ORDER BY seq"):
            with Segment(path) as segment:
                stored = next(segment.records(after=seq - 1))
            ticked = Bodies().read(stored.kind, stored.scope, stored.at_ms, body)
            assert isinstance(ticked, Ticked)
            if any(change.after.weight < change.before.weight for change in ticked.changes):
                alter(path, "UPDATE records SET body = ? WHERE seq = ?", Bodies().write(forge(ticked)), seq)
                reseal(copy)
                found = replay(copy).difference
                assert found is not None
                assert found.seq == seq
                return ticked, found
    raise AssertionError("the storm cut no weight")


def test_a_forged_weight_is_named_by_line_and_field_with_both_values(copy: Path) -> None:
    def forge(ticked: Ticked) -> Ticked:
        changes = [replace(change, after=replace(change.after, weight=99)) for change in ticked.changes]
        return msgspec.structs.replace(ticked, changes=tuple(changes))

    ticked, found = forged(copy, forge)

    first = min(ticked.changes, key=lambda change: change.line)
    assert (found.line, found.field) == (first.line, "after.weight")
    assert (found.recorded, found.recomputed) == ("99", str(first.after.weight))


def test_a_decision_that_was_left_out_is_named(copy: Path) -> None:
    ticked, found = forged(copy, lambda ticked: msgspec.structs.replace(ticked, changes=()))

    assert (found.line, found.field, found.recorded) == (min(one.line for one in ticked.changes), "change", "nothing")


def test_a_forged_digest_is_named(copy: Path) -> None:
    _, found = forged(copy, lambda ticked: msgspec.structs.replace(ticked, digest=bytes(16)))

    assert (found.field, found.recorded) == ("digest", bytes(16).hex())


def test_a_record_of_a_ledger_that_was_never_opened_is_named_by_its_number_alone(copy: Path) -> None:
    path = listed(copy)[0]
    alter(path, "DELETE FROM records WHERE kind = 1")
    reseal(copy)
    first = rows(path, "SELECT min(seq), body FROM records")[0][0]

    with pytest.raises(JournalError) as refused:
        replay(path)

    assert str(refused.value) == f"{path}: seq {first} belongs to a ledger that was never opened"


def test_forged_evidence_decides_differently_and_is_named_by_the_decision(copy: Path) -> None:
    """A forger who seals anew still cannot hide: other evidence makes another ledger."""
    path = listed(copy)[0]
    for seq, body in rows(path, "SELECT seq, body FROM records WHERE kind = 4"):
        alter(path, "UPDATE records SET body = ? WHERE seq = ?", Bodies().write(_nobody(seq)), seq)
        assert body
    reseal(copy)

    found = replay(copy).difference

    assert found is not None
    assert found.field not in ("evidence", "removed")


def _nobody(at_ms: int) -> Members:
    return Members(scope=Scope(cluster="any"), at_ms=at_ms, vantages=frozenset())


def test_a_forged_checkpoint_is_not_what_the_evidence_leads_to(copy: Path) -> None:
    path = listed(copy)[1]
    seq, body = rows(path, "SELECT seq, body FROM records WHERE kind = 1")[0]
    forged_body = b"\x01" + zlib.compress(zlib.decompress(body[1:]).replace(b'"stale":false', b'"stale":true '))
    alter(path, "UPDATE records SET body = ? WHERE seq = ?", forged_body, seq)
    reseal(copy)

    found = replay(copy).difference

    assert found is not None
    assert (found.field, found.seq) == ("checkpoint", seq)
    assert found.recorded != found.recomputed


def test_a_journal_replays_while_a_center_writes_it(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", segment=60)
    ledgers = begin(journal.epoch)
    journal.follow(ledgers)
    done = []
    for part in range(4):
        blow(journal, ledgers, range(part * 100, part * 100 + 100))
        assert journal.flush(20)
        done.append(replay(tmp_path / "journal"))
    journal.close()

    assert [one.difference for one in done] == [None] * 4
    assert [one.records for one in done] == sorted({one.records for one in done})


@pytest.mark.parametrize("name", ["nothing", "empty", "text.db"])
def test_what_is_no_journal_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.db").write_text("this is not a segment, however long it may be " * 100)

    with pytest.raises(JournalError, match=name):
        replay(tmp_path / name)


FLOATS = "import math;print(sum(hash(math.exp(-0.00015 * k)) for k in range(100_000)))"
REPLAYED = """
import sys
from pathlib import Path
from reachline.store.journal import recover
from reachline.store.replay import replay

done = replay(Path(sys.argv[1]))
assert done.difference is None, done.difference
for scope, ledger in recover(sys.argv[1]).ledgers.items():
    print(scope.cluster, done.decisions, ledger.freeze().decode())
"""


def run(python: str, code: str, *arguments: str, **environment: str) -> str:
    ran = subprocess.run(
        [python, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_replay_is_byte_equal_with_the_fma_variants_of_the_c_library_switched_off(recorded: Path) -> None:
    off = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX2_Usable,-FMA_Usable,-FMA4_Usable"}
    if run(sys.executable, FLOATS) == run(sys.executable, FLOATS, **off):
        pytest.skip("this C library or processor has no FMA variant of exp to switch off")

    assert run(sys.executable, REPLAYED, str(recorded), **off) == run(sys.executable, REPLAYED, str(recorded))


PURE = """
import json, sys
from reachline.core.freeze import decode_lines
from reachline.core.ledger import Ledger
from reachline.core.orders import Action, Order
from reachline.core.rules import decode
from reachline.model import Counts, Kind, LineId, Outcome, Reading, VantageId

ledgers, ticks = {}, 0
for text in sys.stdin:
    act, cluster, at_ms, *what = json.loads(text)
    if act == "open":
        ledgers[cluster] = Ledger.thaw(what[0].encode())
        continue
    ledger = ledgers[cluster]
    if act == "report":
        vantage, doubt, rows = what
        readings = [(LineId(line), Reading(Kind(kind), Counts(*counts), *rest)) for line, (kind, counts, *rest) in rows]
        ledger.report(VantageId(vantage), readings, now_ms=at_ms, doubt=doubt)
    elif act == "outcomes":
        ledger.outcomes(what[0], [Outcome(*row) for row in what[1]], now_ms=at_ms)
    elif act == "members":
        ledger.members(frozenset(map(VantageId, what[0])))
    elif act == "reconfigure":
        lines, rules, vantages = what
        ledger.reconfigure(decode_lines(lines.encode()), decode(rules.encode()), frozenset(vantages), now_ms=at_ms)
    elif act == "order":
        number, action, *rest = what[0]
        ledger.order(Order(number, Action(action), *rest))
    elif act == "undo":
        ledger.undo(what[0])
    else:
        found = ledger.close(at_ms)
        assert (found.digest.hex(), len(found.changes)) == tuple(what), (at_ms, found)
        ticks += 1
print(ticks, *(ledger.freeze().decode() for ledger in ledgers.values()))
"""


def exported(directory: Path) -> str:
    """A journal's evidence as JSON lines that the core alone, without any library of ours or others, can follow."""
    bodies = Bodies()
    with Segment(listed(directory)[0]) as segment:
        records = [bodies.read(one.kind, one.scope, one.at_ms, one.body) for one in segment.records()]
    return "\n".join(json.dumps(_exported(record)) for record in records)


def _exported(record: Record) -> list[object]:
    match record:
        case Opened():
            what: list[object] = ["open", record.checkpoint.decode()]
        case Reported():
            what = ["report", record.vantage, record.doubt, freeze.flat(record.readings)]
        case Outcomes():
            what = ["outcomes", record.client, record.rows]
        case Members():
            what = ["members", sorted(record.vantages)]
        case Reconfigured():
            lines, rules = freeze.encode_lines(record.lines), core_rules.encode(record.rules)
            what = ["reconfigure", lines.decode(), rules.decode(), sorted(record.vantages)]
        case Ordered():
            what = ["order", freeze.flat(record.order)]
        case Undone():
            what = ["undo", record.number]
        case Ticked():
            what = ["tick", record.digest.hex(), len(record.changes)]
        case _:
            raise AssertionError(record)
    return [what[0], record.scope.cluster, record.at_ms, *what[1:]]


def interpreter(version: str) -> str:
    """A Python of that version on this machine, or the test is skipped by name."""
    places = [
        shutil.which(f"python{version}"),
        *map(str, (Path.home() / ".pyenv/versions").glob(f"{version}*/bin/python")),
    ]
    for place in filter(None, places):
        told = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.startswith(f"Python {version}"):
            return place
    pytest.skip(f"this machine has no Python {version}")


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_another_python_decides_the_same_to_the_byte(recorded: Path, version: str) -> None:
    python, evidence = interpreter(version), exported(recorded)

    told = [
        subprocess.run(
            [place, "-c", PURE],
            input=evidence,
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for place in (sys.executable, python)
    ]

    assert [one.stderr for one in told] == ["", ""]
    assert told[0].stdout == told[1].stdout
    assert int(told[0].stdout.split()[0]) >= 20
    assert recover(recorded).ledgers


def test_a_segment_removed_from_the_middle_is_missed(copy: Path) -> None:
    first, middle, after, *_ = listed(copy)
    discard(middle)

    found = replay(copy).difference

    assert found is not None
    assert (found.field, found.segment) == ("removed", after.name)
    assert first.exists()
