// The table of tensor types.
#include "quant/types.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(TypeTable, KnowsEveryIdBySize) {
  EXPECT_EQ(type_info(Type::Q4_K).block_bytes, 144);
  EXPECT_EQ(type_info(39u)->name, std::string("MXFP4"));
  EXPECT_EQ(type_info(Type::Q4_K).bytes(2048), 1152u);
  EXPECT_EQ(type_info(Type::I64).bytes(3), 24u);
  for (uint32_t removed : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 1000u})
    EXPECT_EQ(type_info(removed), nullptr) << removed;
}

TEST(TypeTable, ComputableTypesHaveADecoderAndAnActivationFormat) {
  EXPECT_EQ(computable_types(), "F32, F16, Q5_0, Q8_0, Q4_K, Q6_K, BF16");
  EXPECT_EQ(type_info(Type::Q6_K).act, ActFormat::per256);
  EXPECT_EQ(type_info(Type::Q5_0).act, ActFormat::per32);
  EXPECT_EQ(type_info(Type::BF16).act, ActFormat::none);
  EXPECT_FALSE(type_info(Type::Q2_K).computable);
  EXPECT_EQ(type_info(Type::Q2_K).decode, nullptr);
}

TEST(TypeTable, DecodesManyBlocks) {
  const uint8_t halves[] = {0x00, 0x3c, 0x00, 0x40, 0x00, 0xc0};
  float out[3];
  type_info(Type::F16).decode(halves, out, 3);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 2.0f);
  EXPECT_EQ(out[2], -2.0f);
}

TEST(TypeTable, NamesUnknownIds) {
  EXPECT_EQ(type_name(14), "Q6_K");
  EXPECT_EQ(type_name(99), "type 99");
}

}  // namespace
}  // namespace weir
