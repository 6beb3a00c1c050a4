// Runs a program with one float32 input and prints its first output: run MODEL.pte INPUT.f32
#include <cstdio>
#include <fstream>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

using executorch::extension::from_blob;
using executorch::extension::Module;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.pte INPUT.f32\n", argv[0]);
    return 2;
  }
  Module module(argv[1]);
  const auto method = module.method_meta("forward");
  if (!method.ok()) {
    std::fprintf(stderr, "%s: error 0x%x\n", argv[1], unsigned(method.error()));
    return 1;
  }
  // Sizes that change have their upper bounds here.
  const auto input = method->input_tensor_meta(0);
  if (!input.ok() || input->scalar_type() != executorch::aten::ScalarType::Float) {
    std::fprintf(stderr, "%s: the first input is not a float32 tensor\n", argv[1]);
    return 1;
  }
  const std::vector<executorch::aten::SizesType> sizes(input->sizes().begin(), input->sizes().end());
  std::vector<float> values(input->nbytes() / sizeof(float));
  std::ifstream file(argv[2], std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(values.data()), std::streamsize(input->nbytes()))) {
    std::fprintf(stderr, "%s: fewer than %zu bytes\n", argv[2], input->nbytes());
    return 1;
  }

  const auto outputs = module.forward(from_blob(values.data(), sizes));
  if (!outputs.ok()) {
    std::fprintf(stderr, "forward: error 0x%x\n", unsigned(outputs.error()));
    return 1;
  }
  const auto output = outputs->at(0).toTensor();
  for (ssize_t i = 0; i < output.numel(); ++i) {
    std::printf("%.9g\n", double(output.const_data_ptr<float>()[i]));
  }
  return 0;
}
