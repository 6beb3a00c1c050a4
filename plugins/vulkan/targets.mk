# Targets of the Vulkan backend, for the Makefile at the top.

#: SwiftShader, the second Vulkan driver.
SWIFTSHADER := out/swiftshader/vk_swiftshader_icd.json
ON_SWIFTSHADER := VK_DRIVER_FILES=$(abspath $(SWIFTSHADER)) $(BIN)

.PHONY: swiftshader shaders
TEST_ALL += $(if $(or $(if $(PACKAGE),,all),$(filter plugins/vulkan,$(PACKAGE))),swiftshader)

$(SWIFTSHADER): plugins/vulkan/tests/swiftshader.py
	$(PYTHON) $< $(@D)

swiftshader: $(STAMP) $(SWIFTSHADER) ## the Vulkan tests and conformance on SwiftShader, which npm fetches
	$(ON_SWIFTSHADER)/python -m pytest -m "needs_device and not slow" -n 2 plugins/vulkan/tests
	$(ON_SWIFTSHADER)/delegatekit conform vulkan --quick --expectations plugins/vulkan/tests/swiftshader.toml \
		$(addprefix --select ,contract dynamic state graphs robustness 'operators/*float32')

shaders: ## compile the Vulkan backend's shaders that changed, with glslc
	$(PYTHON) plugins/vulkan/tests/shader_build.py
