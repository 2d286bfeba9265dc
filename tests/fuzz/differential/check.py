"""Check a case for errors of the converter and for different outputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from mobileprep.errors import MobileprepError, UnsupportedError, UsageError
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import INTEGERS, converted, to_calibrate
from mobileprep.litert.prepare import CutInput, Prepared, prepared
from mobileprep.litert.quantizing.kernels import Integers
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.fuzz.differential.engines import ENGINES, Answer, Worker
from tests.fuzz.differential.generate import Case
from tests.fuzz.differential.tolerance import (
    MANY_RUNS,
    RUNS,
    Steps,
    accepted,
    file_steps,
    float_tensors,
    least,
    loop_tensors,
    own_steps,
    tolerances,
    weights,
)

_LIMITS = ("UnimplementedError", "Input dims must be", "not supported")
"""Parts of messages of TensorFlow about ranks and dtypes that it does not compute."""
_MISSING = "Didn't find op for builtin opcode"


class Finding(Struct, frozen=True):
    """A failure.

    Args:
        kind: the failure; equal causes give equal strings.
        detail: the difference.
        codes: the operators of the file.
    """

    kind: str
    detail: str
    codes: tuple[str, ...] = ()


@dataclass
class Checker:
    """Checks cases, with LiteRT and TensorFlow in separate processes.

    Args:
        with_tensorflow: whether to compare our interpreter with TensorFlow, too.
    """

    with_tensorflow: bool = False
    refusals: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    _litert: Worker = field(default_factory=lambda: Worker("litert"))
    _tensorflow: Worker = field(default_factory=lambda: Worker("tensorflow"))

    def findings(self, case: Case) -> list[Finding]:
        """The failures of a case."""
        return list(self._findings(case))

    def stop(self) -> None:
        """End the other processes."""
        self._litert.stop()
        self._tensorflow.stop()

    def _findings(self, case: Case) -> Iterator[Finding]:
        try:
            expected = NumpyEngine(case.graph, "fuzz").run(case.outputs, case.feeds)
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            yield Finding(f"interpreter: {_form(error)}", str(error))
            return
        if self.with_tensorflow:
            yield from self._against_tensorflow(case, expected)
        specs = [CutInput(name) for name in case.feeds]
        try:
            source = prepared(case.graph, specs, case.outputs)
            ours = Judge(case, expected, specs)
            record = ours.converted(source)
        except (UnsupportedError, UsageError) as error:
            self.refusals[_digitless(str(error).splitlines()[-1][:150])] += 1
            return
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            yield Finding(f"converter: {_form(error)}", str(error))
            return
        content = bytes(model_bytes(record))
        codes = tuple(
            sorted({o.code.custom or o.code.builtin for g in record.subgraphs for o in g.operators})
        )
        engines = ENGINES if case.mode in INTEGERS else ENGINES[:2]
        answers = self._answers(content, list(case.feeds.values()), engines)
        self.compared += 1
        for finding in ours.differences(source, answers):
            yield Finding(finding.kind, finding.detail, codes)

    def _answers(
        self, content: bytes, feeds: list[Array], engines: Sequence[str]
    ) -> dict[str, Answer]:
        results: dict[str, Answer] = {}
        while len(results) < len(engines):
            rest = engines[len(results) :]
            answers = self._litert.ask((content, feeds, rest))
            results.update(zip(rest, answers, strict=False))
        # The set of reference kernels is smaller.
        return {e: a for e, a in results.items() if not (e == "reference" and _MISSING in a.error)}

    def _against_tensorflow(self, case: Case, expected: Sequence[Array]) -> Iterator[Finding]:
        request = (bytes(graph_to_bytes(case.graph)), dict(case.feeds), list(case.outputs))
        answer = self._tensorflow.ask(request)[0]
        if any(limit in answer.error for limit in _LIMITS):
            return
        if answer.error:
            yield Finding(f"tensorflow: {_digitless(answer.error)[:200]}", answer.error)
            return
        specs = [CutInput(name) for name in case.feeds]
        source = prepared(case.graph, specs, case.outputs)
        allowed = tolerances(source, case.feeds, "float", float_tensors(source.graph), None)
        for i, (actual, reference) in enumerate(zip(answer.outputs, expected, strict=True)):
            text = _difference(np.asarray(actual), reference, allowed[i][1])
            if text:
                yield Finding("tensorflow: other values", f"{case.outputs[i]}: {text}")


@dataclass
class Judge:
    """Converts a case and judges the answers of LiteRT."""

    case: Case
    expected: Sequence[Array]
    specs: Sequence[CutInput]
    record: ModelRecord | None = None
    own: dict = field(default_factory=dict)
    within: dict[Edge, float] = field(default_factory=dict)

    def converted(self, source: Prepared) -> ModelRecord:
        case = self.case
        if case.mode not in INTEGERS:
            self.record = converted(case.graph, self.specs, case.outputs, mode=case.mode)
            return self.record
        calibration = to_calibrate(case.graph, self.specs, case.outputs)
        tensors = list(calibration.tensors)
        feeds = dict(zip(calibration.inputs, case.feeds.values(), strict=True))
        rounded = list(
            dict.fromkeys([*float_tensors(calibration.graph), *weights(calibration.graph)])
        )
        rounded = list(dict.fromkeys([*rounded, *tensors]))
        with np.errstate(all="ignore"):
            arrays = NumpyEngine(calibration.graph, "fuzz").run(
                [str(Ref(*t)) for t in rounded], feeds
            )
        values = dict(zip(rounded, arrays, strict=True))
        ranges = {
            str(Ref(*t)): (float(values[t].min()), float(values[t].max()))
            for t in tensors
            if values[t].size
        }
        self.within = loop_tensors(source.graph, tensors, case.mode)
        self.own = own_steps(calibration.graph, values, tensors, self.within, case.mode)
        integers = Integers(INTEGERS[case.mode], ranges)
        self.record = converted(
            case.graph, self.specs, case.outputs, mode=case.mode, integers=integers
        )
        return self.record

    def differences(self, source, answers: dict[str, Answer]) -> Iterator[Finding]:
        errors: dict[str, list[str]] = {}
        for engine, answer in answers.items():
            if answer.error:
                errors.setdefault(_digitless(answer.error)[:200], []).append(engine)
        for message, engines in errors.items():
            yield Finding(f"{','.join(engines)}: {message}", answers[engines[0]].error)
        rest = {e: a.outputs for e, a in answers.items() if not a.error}
        if not rest:
            return
        lowest = self._lowest(source)
        if not self._wrong_outputs(rest, lowest)[0]:
            return
        feeds = dict(zip(source.inputs, self.case.feeds.values(), strict=True))
        file = {} if self.record is None else file_steps(self.record, self.own)
        steps = accepted(self.own, file)
        # Few runs find suspects, and many confirm them.
        for runs in (RUNS, MANY_RUNS):
            wrong, texts = self._wrong_outputs(rest, self._allowed(source, feeds, steps, runs))
            if not wrong:
                return
        kind = "wrong"
        if self.own:
            confirmed, confirmed_texts = self._wrong_outputs(
                rest, self._allowed(source, feeds, file, MANY_RUNS)
            )
            if confirmed:
                wrong, texts = confirmed, confirmed_texts
            else:
                kind = "coarse"
        yield Finding(f"{kind}: {','.join(wrong)}", "\n".join(texts))

    def _lowest(self, source) -> list[Array]:
        """The lowest possible tolerances."""
        mode = self.case.mode
        steps = [self.own.get(edge(ref), 0.0) for ref in source.outputs]
        return [least(w, mode, s) for w, s in zip(self.expected, steps, strict=True)]

    def _allowed(self, source, feeds, steps: Steps, runs: int) -> list[Array | None]:
        mode = self.case.mode
        floats = float_tensors(source.graph)
        if mode in INTEGERS:
            rounded = [t for t in steps if t[0] in source.graph or t in self.within]
            rounded = list(dict.fromkeys([*rounded, *floats]))
            results = tolerances(source, feeds, mode, rounded, steps, runs)
        else:
            results = tolerances(source, feeds, "float", floats, None, runs)
        return [allowed for _, allowed in results]

    def _wrong_outputs(self, rest, allowed) -> tuple[list[str], list[str]]:
        wrong, texts = [], []
        for engine, outputs in rest.items():
            for i, (actual, reference) in enumerate(zip(outputs, self.expected, strict=True)):
                text = _difference(actual, reference, allowed[i])
                if text:
                    texts.append(f"{engine} {self.case.outputs[i]}: {text}")
                    if engine not in wrong:
                        wrong.append(engine)
        return wrong, texts


def _difference(actual: Array, reference: Array, allowed: Array | None) -> str:
    """Describe a difference; empty if there is none."""
    if actual.dtype != reference.dtype:
        return f"{actual.dtype} instead of {reference.dtype}"
    if allowed is None:
        return ""
    if actual.shape != reference.shape:
        return f"shape {actual.shape} instead of {reference.shape}"
    with np.errstate(all="ignore"):
        away = np.abs(actual.astype(np.float64) - reference.astype(np.float64))
    bad = ~(away <= allowed)
    if not bad.any():
        return ""
    at = np.unravel_index(np.argmax(np.where(bad, away - allowed, -1)), bad.shape)
    place = [int(i) for i in at]
    return (
        f"{actual[at]!r} instead of {reference[at]!r} at {place}, {int(bad.sum())} of {bad.size} "
        f"elements, allowed {allowed[at]:.3g}"
    )


def _form(error: Exception) -> str:
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if "mobileprep/" in f.filename]
    place = f"{frames[-1].filename.rsplit('mobileprep/', 1)[1]}:{frames[-1].name}" if frames else ""
    text = str(error) if isinstance(error, MobileprepError) else ""
    text = re.sub(r"'[^']*'", "'_'", text)
    return f"{type(error).__name__} in {place} {_digitless(text)[:120]}".strip()


def _digitless(text: str) -> str:
    return re.sub(r"'[^']*'", "'_'", re.sub(r"\d+", "0", text))
