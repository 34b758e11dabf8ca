// The table of block formats, by id. Knows sizes and names; a format's arithmetic lives in its own header.
#include "quant/types.h"

#include "base/error.h"

namespace weir {
namespace {

constexpr TypeInfo table[] = {
#define WEIR_TYPE(name, id, elements, bytes) \
  {Type::name, #name, elements, bytes, false, ActFormat::none, nullptr},
#include "quant/types.def"
#undef WEIR_TYPE
};

}  // namespace

const TypeInfo* type_info(uint32_t id) {
  for (const TypeInfo& info : table)
    if (static_cast<uint32_t>(info.type) == id) return &info;
  return nullptr;
}

const TypeInfo& type_info(Type type) {
  const TypeInfo* info = type_info(static_cast<uint32_t>(type));
  WEIR_CHECK(info, "type id {}", static_cast<uint32_t>(type));
  return *info;
}

std::string type_name(uint32_t id) {
  const TypeInfo* info = type_info(id);
  return info ? info->name : fmt::format("type {}", id);
}

std::string computable_types() {
  std::string names;
  for (const TypeInfo& info : table)
    if (info.computable) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

}  // namespace weir
