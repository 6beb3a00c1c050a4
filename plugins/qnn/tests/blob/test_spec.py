"""The compile spec: equal to that of ExecuTorch's own generator, field by field; and refused contents."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegatekit_api import FormatError
from delegatekit_qnn.blob.spec import (
    BackendChoice,
    Opaque,
    OpPackages,
    Options,
    SocInfo,
    check_spec,
    compile_spec_of,
    measured,
    options_of,
)
from delegatekit_qnn.options import QnnOptions
from delegatekit_qnn.targets import CHIPS
from delegatekit_toolkit import flatbuffer as fb

#: For all chips and options: stock's options as JSON, decoded from ours and from stock's generator; prints both.
SCRIPT = """
import json, sys, base64
from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset, QnnExecuTorchHtpPerformanceMode
from executorch.backends.qualcomm.serialization.qc_schema_serialize import flatbuffer_to_option, _DataclassEncoder
from executorch.backends.qualcomm.utils.utils import (
    generate_htp_compiler_spec, generate_qnn_executorch_compiler_spec)
result = []
for chip, floats, shared, performance, profile, ours in json.load(open(sys.argv[1])):
    backend = generate_htp_compiler_spec(use_fp16=floats, use_weight_sharing=shared)
    backend.htp_options.performance_mode = QnnExecuTorchHtpPerformanceMode(performance)
    (stock,) = generate_qnn_executorch_compiler_spec(
        soc_model=QcomChipset(chip), backend_options=backend, profile_level=profile)
    plain = [json.loads(json.dumps(flatbuffer_to_option(data), cls=_DataclassEncoder))
             for data in (base64.b64decode(ours), stock.value)]
    result.append([stock.key, *plain, base64.b64encode(stock.value).decode()])
print(json.dumps(result))
"""


@pytest.mark.parametrize("profile", ["off", "detailed", "optrace"])
@pytest.mark.parametrize("soc", ["sm8350", "sm8650"])
def test_a_spec_that_measures_is_as_long_and_says_nothing_else_new(profile: str, soc: str) -> None:
    value = options_of(QnnOptions(profile=profile, soc=soc), floats=False, shared=True)
    changed = measured(value)
    assert len(changed) == len(value)
    assert check_spec(changed) == check_spec(value)
    before, after = (fb.parse(Options, item, ()) for item in (value, changed))
    assert after.profile_level == max(before.profile_level, 2)
    assert replace(after, profile_level=0, saver_output_dir="") == replace(before, profile_level=0)


def test_a_spec_without_room_stays_as_it_is() -> None:
    value = fb.serialize(Options(library_path=""))
    assert measured(value) == value


def test_it_means_what_stock_s_generator_writes(stock_process: Any, tmp_path: Path) -> None:
    pytest.importorskip("executorch.backends.qualcomm.python.PyQnnManagerAdaptor")
    cases = [(soc, QnnOptions(soc=soc), True, False, 2, 0) for soc in CHIPS]
    cases += [
        ("sm8650", QnnOptions(performance="balanced"), False, True, 8, 0),
        ("sm8650", QnnOptions(profile="optrace", performance="default"), False, False, 0, 3),
        ("sm8650", QnnOptions(profile="detailed"), False, False, 2, 2),
    ]
    asked = [
        (CHIPS[soc].number, floats, shared, performance, profile, options_of(options, floats=floats, shared=shared))
        for soc, options, floats, shared, performance, profile in cases
    ]
    file = tmp_path / "asked.json"
    file.write_text(json.dumps([[*item[:-1], b64encode(item[-1]).decode()] for item in asked]))
    answers = json.loads(stock_process.run(SCRIPT, file).splitlines()[-1])
    assert len(answers) == len(cases)
    for (*_, ours), (key, found, wanted, stock) in zip(asked, answers, strict=True):
        assert key == compile_spec_of(ours).key
        # The path for a saver's output, if it were enabled.
        assert found.pop("saver_output_dir") in ("", wanted.pop("saver_output_dir"))
        # Stock's data about another processor of the chip.
        assert found["soc_info"].pop("lpai_info") is None
        wanted["soc_info"].pop("lpai_info")
        assert found == wanted
        check_spec(ours)
        check_spec(b64decode(stock))


def test_the_vtcm_is_the_chip_s_unless_the_user_says_less() -> None:
    def megabytes(options: QnnOptions) -> int:
        chip = fb.parse(Options, options_of(options, floats=False)).soc_info
        assert chip is not None and chip.htp_info is not None
        return chip.htp_info.vtcm_size_in_mb

    assert megabytes(QnnOptions(soc="sm8350")) == 4
    assert megabytes(QnnOptions(soc="sm8350", vtcm=2)) == 2


def whole() -> Options:
    return fb.parse(Options, options_of(QnnOptions(), floats=False))


WRONG = {
    "incomplete": [
        Options(),
        replace(whole(), soc_info=None),
        replace(whole(), soc_info=SocInfo(57)),
        replace(whole(), library_path=None),
    ],
    "another processor": [
        replace(whole(), backend_options=BackendChoice(1)),
        replace(whole(), backend_options=BackendChoice(2)),
    ],
    "packages of operations": [
        replace(whole(), op_package_options=None),
        replace(whole(), op_package_options=OpPackages([Opaque()])),
    ],
    "names the library /tmp/own.so": [replace(whole(), library_path="/tmp/own.so")],
    "online_prepare": [replace(whole(), online_prepare=True)],
    "dump_intermediate_outputs": [replace(whole(), dump_intermediate_outputs=True)],
    "shared_buffer": [replace(whole(), shared_buffer=True)],
    "saver": [replace(whole(), saver=True, saver_output_dir="/tmp")],
}


@pytest.mark.parametrize("reason", WRONG)
def test_what_the_delegate_must_not_see_is_refused(reason: str) -> None:
    check_spec(fb.serialize(whole()))
    for options in WRONG[reason]:
        with pytest.raises(FormatError, match=reason):
            check_spec(fb.serialize(options))


def test_bytes_that_are_no_flatbuffer_are_refused() -> None:
    value = options_of(QnnOptions(), floats=True)
    for damaged in (b"", value[:40], b"\xff" * 64):
        with pytest.raises(FormatError):
            check_spec(damaged)
