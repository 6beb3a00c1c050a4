"""The .pte and .ptd formats: schemas, writers, readers, and the checks before a file is run."""

from __future__ import annotations

from . import schema
from .bundle import BUNDLE_IDENTIFIER, BUNDLE_VERSION, bundled_program, is_bundle
from .dataflow import calls
from .dtypes import scalar_type, torch_dtype
from .image import Datum, PtdImage, PteImage
from .manifest import content_key
from .own import OWN_KEYS
from .ptd_reader import PtdFile, StoredData, read_ptd
from .ptd_schema import PTD_IDENTIFIER, TensorLayout
from .ptd_writer import ptd_to_bytes, write_ptd
from .reader import Header, PteFile, naming, read
from .segments import SEGMENT_ALIGNMENT, Data, data_size, round_up
from .validation import validate
from .writer import to_bytes, write, write_to

__all__ = [
    "BUNDLE_IDENTIFIER",
    "BUNDLE_VERSION",
    "OWN_KEYS",
    "PTD_IDENTIFIER",
    "SEGMENT_ALIGNMENT",
    "Data",
    "Datum",
    "Header",
    "PtdFile",
    "PtdImage",
    "PteFile",
    "PteImage",
    "StoredData",
    "TensorLayout",
    "bundled_program",
    "calls",
    "content_key",
    "data_size",
    "is_bundle",
    "naming",
    "ptd_to_bytes",
    "read",
    "read_ptd",
    "round_up",
    "scalar_type",
    "schema",
    "to_bytes",
    "torch_dtype",
    "validate",
    "write",
    "write_ptd",
    "write_to",
]
