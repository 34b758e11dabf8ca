// libFuzzer entry for the GGUF reader (-DWEIR_FUZZ=ON, clang): any bytes load or are refused with an Error.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "gguf/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto model = weir::gguf::Model::parse({data, size}, "fuzz.gguf");
    for (const auto& tensor : model.tensors())
      if (tensor.offset > size || tensor.bytes > size - tensor.offset) __builtin_trap();
    (void)model.fingerprint();
  } catch (const weir::Error&) {
  }
  return 0;
}
