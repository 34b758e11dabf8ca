// The table of tensor types: sizes from types.def, decoders and activation formats from codecs.h. Built at
// compile time, so that a codec whose sizes disagree with types.def does not compile.
#include "quant/types.h"

#include <array>
#include <iterator>

#include "base/error.h"
#include "quant/codecs.h"

namespace weir {
namespace {

constexpr TypeInfo kSizes[] = {
#define WEIR_TYPE(name, id, elements, bytes) \
  {Type::name, #name, elements, bytes, false, ActFormat::none, nullptr},
#include "quant/types.def"
#undef WEIR_TYPE
};
constexpr size_t kTypes = std::size(kSizes);

template <typename Codec>
void decode_blocks(const void* blocks, float* out, int64_t elements) {
  const auto* block = static_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < elements; i += Codec::block_elements, block += Codec::block_bytes)
    Codec::decode(block, out + i);
}

constexpr std::array<TypeInfo, kTypes> make_table() {
  std::array<TypeInfo, kTypes> table{};
  for (size_t i = 0; i < kTypes; ++i) table[i] = kSizes[i];
  quant::Codecs::each([&]<typename Codec>() {
    bool found = false;
    for (TypeInfo& info : table) {
      if (info.type != Codec::type) continue;
      found = info.block_elements == Codec::block_elements && info.block_bytes == Codec::block_bytes;
      info.computable = true, info.act = Codec::act, info.decode = decode_blocks<Codec>;
    }
    if (!found) throw "a codec's type or sizes are not those of types.def";
  });
  return table;
}

constexpr std::array<TypeInfo, kTypes> kTable = make_table();

}  // namespace

const TypeInfo* type_info(uint32_t id) {
  for (const TypeInfo& info : kTable)
    if (static_cast<uint32_t>(info.type) == id) return &info;
  return nullptr;
}

const TypeInfo& type_info(Type type) {
  const TypeInfo* info = type_info(static_cast<uint32_t>(type));
  WEIR_CHECK(info != nullptr, "type {}", static_cast<uint32_t>(type));
  return *info;
}

std::string type_name(uint32_t id) {
  const TypeInfo* info = type_info(id);
  return info ? info->name : fmt::format("type {}", id);
}

std::string computable_types() {
  std::string names;
  for (const TypeInfo& info : kTable) {
    if (!info.computable) continue;
    if (!names.empty()) names += ", ";
    names += info.name;
  }
  return names;
}

}  // namespace weir
