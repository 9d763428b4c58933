"""The report as JSON: valid against its schema, whatever a child called itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentd
from agentd.cgroup.limits import FIELD_FILES, TIMES
from agentd.cgroup.usage import parse_usage
from agentd.process.left_behind import LeftBehind
from agentd.process.oom import Oom
from agentd.process.report import (
    VERSION,
    Enforcement,
    Event,
    LimitsReport,
    Report,
    StreamTail,
    Teardown,
    failed_start,
)
from agentd.process.verdict import OURS, Verdict

SCHEMA = json.loads(Path(agentd.__file__).with_name("report.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
# Any text that the kernel can give us: bytes that are no UTF-8 are halves of surrogate pairs in it.
foreign = st.binary(max_size=20).map(lambda data: data.decode(errors="surrogateescape"))

FULL_USAGE = parse_usage(
    {
        "memory.peak": "1\n",
        "memory.swap.peak": "1\n",
        "memory.events": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n",
        "memory.events.local": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n",
        "pids.peak": "7\n",
        "pids.events": "max 8\n",
        "pids.events.local": "max 8\n",
        "cpu.stat": "usage_usec 1\nuser_usec 1\nsystem_usec 1\nnr_periods 1\nnr_throttled 1\nthrottled_usec 1\n",
        "io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n",
        "cpu.pressure": "some avg10=0.00 total=1\nfull avg10=0.00 total=1\n",
        "memory.pressure": "some avg10=0.00 total=1\nfull avg10=0.00 total=1\n",
        "io.pressure": "some avg10=0.00 total=1\nfull avg10=0.00 total=1\n",
    }
)


def report(**changes: Any) -> Report:
    fields: dict[str, Any] = {
        "id": "01a22ee7e3d055be6522c5",
        "name": "sh",
        "argv": ("sh",),
        "cwd": "/",
        "pid": 7,
        "started": 0.25,
        "ended": 1e9,
        "duration": 1.5,
        "verdict": Verdict("completed", "ok", None, 0, None, False, ("exited with 0",)),
        "limits": lambda: LimitsReport(
            {"wall": 5.0, "memory_max": "1M"}, {"wall": 5.0}, {"memory_max": "no"}
        ),
        "enforcement": Enforcement(
            "cgroup", "/c", "run-1-1", "born", "hybrid", ("a note",), {"pid": 7, "problem": None}
        ),
        "teardown": Teardown(True, 1, 0.01, True),
        "usage": lambda: FULL_USAGE,
        "oom": Oom("ancestor", "/c", True, 4096),
        "events": (Event(0.0, "term", "3 processes"),),
        "left_behind": (LeftBehind(9, "sleep", ("sleep", "9"), 0.5, "S", 7),),
        "left_behind_count": 1,
        "tails": {"stdout": StreamTail(b"\xff\x00", 5, True)},
    }
    return Report(**{**fields, **changes})


def check(made: Report) -> dict[str, Any]:
    plain = made.to_dict()
    VALIDATOR.validate(plain)
    text = json.dumps(plain, ensure_ascii=False)
    text.encode()  # as UTF-8, also without the escapes of JSON
    again = json.loads(text)
    assert again == plain
    return dict(plain)


def test_the_schema_is_one_of_its_version() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["version"]["const"] == VERSION
    assert SCHEMA["$id"].endswith(f":{VERSION}")


def parts(schema: Any, path: str = "report") -> list[tuple[str, dict[str, Any]]]:
    """Each property of the schema, wherever it is nested."""
    found = []
    for name, inner in schema.get("properties", {}).items():
        found += [(f"{path}.{name}", inner), *parts(inner, f"{path}.{name}")]
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            found += parts(schema[word], f"{path}[]")
    return found


def test_every_key_is_described_and_no_other_may_come() -> None:
    for path, schema in parts(SCHEMA):
        assert schema.get("description"), path
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path
    assert SCHEMA["additionalProperties"] is False


def test_a_full_report_has_every_key_of_the_schema() -> None:
    """So that the schema describes nothing that does not exist."""
    plain = check(report())

    def compare(value: Any, schema: Any, path: str) -> None:
        if "properties" in schema:
            assert set(value) == set(schema["properties"]), path
            for name, inner in schema["properties"].items():
                compare(value[name], inner, f"{path}.{name}")
        for inner in value if isinstance(value, list) else ():
            compare(inner, schema["items"], f"{path}[]")

    compare(plain, SCHEMA, "report")


def test_the_schema_rejects_what_is_not_ours() -> None:
    plain = report().to_dict()
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**plain, "extra": 1})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**plain, "pid": "7"})


def test_every_cause_is_in_the_schema() -> None:
    causes = set(SCHEMA["properties"]["verdict"]["properties"]["cause"]["enum"])
    assert causes >= OURS
    assert causes >= {"ok", "error", "signal", "memory", "escaped", "start", "unknown"}


@given(name=foreign, argument=foreign, cwd=foreign, note=foreign)
def test_no_child_can_spoil_its_report(name: str, argument: str, cwd: str, note: str) -> None:
    left = LeftBehind(9, name, (argument,), 0.5, "R", 7)
    made = report(
        name=name,
        cwd=cwd,
        argv=(argument,),
        left_behind=(left,),
        events=(Event(0.1, "escaped", note),),
        teardown=Teardown(False, 0, 0.0, None, (note,)),
    )
    check(made)


def test_bytes_that_are_no_text_are_shown() -> None:
    assert check(report(cwd="/é\udcff"))["cwd"] == "/é\\xff"


def test_a_command_that_never_ran_has_a_report_too() -> None:
    error = agentd.StartError("x: not found", stage="exec", errno=2, exit_code=127)
    plain = check(failed_start(["x", "\udcff"], {}, error, 127))
    assert plain["exit_code"] == 127
    assert plain["verdict"]["cause"] == "start"
    assert plain["pid"] is None


def test_a_refused_limit_is_in_the_report() -> None:
    limits = agentd.Limits(memory_max="64M")
    error = agentd.LimitNotInForceError({"memory_max": "it is bound to cgroup v1"})
    plain = check(failed_start(["x"], {"limits": limits}, error, 125))
    assert plain["limits"]["why_not"] == {"memory_max": "it is bound to cgroup v1"}


@pytest.mark.parametrize("field", [*FIELD_FILES, *TIMES])
def test_limits_are_reported_by_their_field(field: str) -> None:
    asked = LimitsReport({field: 1.5}, {field: "1"}, {})
    assert check(report(limits=lambda: asked))["limits"]["asked"] == {field: 1.5}


def test_times_are_utc() -> None:
    plain = check(report())
    assert plain["started"] == "1970-01-01T00:00:00.250000Z"
    assert plain["ended"] == "2001-09-09T01:46:40.000000Z"
