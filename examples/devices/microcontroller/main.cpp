// Runs a program that lies in the firmware, in memory of fixed size, without an operating system or a heap.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include "model_pte.h"  // alignas(16) const unsigned char model_pte[], from header.py

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using namespace executorch::runtime;

// `delegatekit inspect` tells the sizes: METHOD_BYTES is "memory" and some kilobytes for the method itself, SCRATCH_BYTES the
// NPU's "sram".
#ifndef METHOD_BYTES
#define METHOD_BYTES (256 * 1024)
#endif
#ifndef SCRATCH_BYTES
#define SCRATCH_BYTES (256 * 1024)
#endif
alignas(16) static uint8_t method_pool[METHOD_BYTES];
alignas(16) static uint8_t scratch_pool[SCRATCH_BYTES];

static int failed(const char* what, Error error) {
  std::printf("%s: error 0x%" PRIx32 "\n", what, uint32_t(error));
  return 1;
}

int main() {
  runtime_init();
  executorch::extension::BufferDataLoader loader(model_pte, sizeof(model_pte));
  Result<Program> program = Program::load(&loader);
  if (!program.ok()) {
    return failed("load", program.error());
  }
  Result<MethodMeta> meta = program->method_meta("forward");
  if (!meta.ok()) {
    return failed("forward", meta.error());
  }

  // One arena for the values between operators, as the file plans it; the rest of the pool is for the method's own tables.
  MemoryAllocator method_memory(METHOD_BYTES, method_pool);
  MemoryAllocator scratch(SCRATCH_BYTES, scratch_pool);
  Span<uint8_t> arenas[1];
  const size_t count = meta->num_memory_planned_buffers();
  if (count > 1) {
    return failed("more than one arena", Error::NotSupported);
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t size = size_t(meta->memory_planned_buffer_size(i).get());
    auto* memory = static_cast<uint8_t*>(method_memory.allocate(size, 16));
    if (memory == nullptr) {
      return failed("METHOD_BYTES is too small", Error::MemoryAllocationFailed);
    }
    arenas[i] = {memory, size};
  }
  HierarchicalAllocator planned({arenas, count});
  MemoryManager memory(&method_memory, &planned, &scratch);
  Result<Method> method = program->load_method("forward", &memory);
  if (!method.ok()) {
    return failed("load_method", method.error());
  }

  // The input: here a ramp from 0 to 1; on a device what the sensor says.
  Result<TensorInfo> info = meta->input_tensor_meta(0);
  if (!info.ok() || info->scalar_type() != ScalarType::Float) {
    return failed("the first input is not a float32 tensor", Error::InvalidArgument);
  }
  auto* values = static_cast<float*>(method_memory.allocate(info->nbytes(), 16));
  if (values == nullptr) {
    return failed("METHOD_BYTES is too small for the input", Error::MemoryAllocationFailed);
  }
  const size_t elements = info->nbytes() / sizeof(float);
  for (size_t i = 0; i < elements; ++i) {
    values[i] = float(i) / float(elements);
  }
  TensorImpl input(
      info->scalar_type(),
      info->sizes().size(),
      const_cast<TensorImpl::SizesType*>(info->sizes().data()),
      values,
      const_cast<TensorImpl::DimOrderType*>(info->dim_order().data()));
  Error error = method->set_input(Tensor(&input), 0);
  if (error != Error::Ok) {
    return failed("set_input", error);
  }

  error = method->execute();
  if (error != Error::Ok) {
    return failed("execute", error);
  }
  const Tensor output = method->get_output(0).toTensor();
  for (ssize_t i = 0; i < output.numel(); ++i) {
    std::printf("%.6f\n", double(output.const_data_ptr<float>()[i]));
  }
  return 0;
}
