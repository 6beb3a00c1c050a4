"""The hooks: what core sees of the backend."""

from __future__ import annotations

from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_reference import plugin


class TestPlugin(PluginTests):
    backend, delegate_id = "reference", "ReferenceBackend"
    wrong_options = ({"leave_out": "nothing"},)


def test_the_description_is_complete() -> None:
    description = plugin.describe_backend()
    assert description.supports_dynamic_shapes and not description.owns_state
    assert list(plugin.quantization_schemes()) == []
