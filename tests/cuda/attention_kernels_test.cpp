// Attention's launchers by themselves: the portable arithmetic against the scalar kernels' bits, the fast one
// against double, and that neither batch, slices nor the choice of kernels changes a bit of a row.
#include "cuda/attention_batch.h"

namespace weir::cuda {
namespace {

using namespace attention_test;

std::vector<Row> prompt(int lane, int first, int count) {
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back({lane, first + i});
  return rows;
}

/// Rows of several lanes, some of them neighbours in a lane, at and around the ends of chunks.
const std::vector<Row> mixed = {{0, 62}, {0, 63}, {0, 64}, {1, 3}, {2, 255}, {2, 256}, {2, 300}, {1, 130}};

class AttentionShape : public testing::TestWithParam<Shape> {};

TEST_P(AttentionShape, PortableHasTheBitsOfTheScalarKernels) {
  const Batch b(GetParam(), mixed, 1);
  expect_same_bits(b.attend({}), b.scalar());
}

TEST_P(AttentionShape, PortableRowsThatShareABlockHaveTheSameBits) {
  std::vector<Row> rows = prompt(0, 250, 10);
  while (rows.size() < 64) rows.push_back({1, static_cast<int>(rows.size()) - 10});
  const Batch b(GetParam(), rows, 2);
  expect_same_bits(b.attend({.multiprocessors = 1}), b.scalar());
}

TEST_P(AttentionShape, FastIsNearTheExactResult) {
  const Batch b(GetParam(), mixed, 3);
  const std::vector<double> exact = b.exact();
  for (const int multiprocessors : {1, 1000}) {
    const std::vector<float> y =
        b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = multiprocessors});
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], exact[i], 2e-3) << "element " << i << ", " << multiprocessors << " multiprocessors";
  }
}

TEST_P(AttentionShape, FastHasTheSameBitsWalkedAndInChunks) {
  const Batch b(GetParam(), mixed, 4);
  const auto walked = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  expect_same_bits(walked, b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000}));
  // Lanes of their own: a row a block.
  expect_same_bits(
      walked, b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000, .kv_positions = 1u << 20}));
}

TEST_P(AttentionShape, FastRowsAloneHaveTheBitsOfTheBatch) {
  const Batch b(GetParam(), mixed, 5);
  const auto batch = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  for (size_t r = 0; r < b.rows.size(); ++r)
    expect_same_bits(batch, b.alone(r).attend({.arithmetic = Arithmetic::fast}), r * b.row_floats());
}

TEST_P(AttentionShape, SlicesChangeNothing) {
  const Batch b(GetParam(), mixed, 6);
  const size_t one_row = attend_partial_bytes(1, b.shape.heads, b.shape.head_dim, b.positions);
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast})
    expect_same_bits(
        b.attend({.arithmetic = arithmetic, .multiprocessors = 1000, .partial_bytes = one_row * 3}),
        b.attend({.arithmetic = arithmetic, .multiprocessors = 1000}));
}

TEST_P(AttentionShape, WhatLiesBehindALanesLastPositionDoesNotMatter) {
  Batch b(GetParam(), {{0, 70}, {1, 200}, {0, 100}}, 7);
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast})
    for (const int multiprocessors : {1, 1000}) {
      const auto before = b.attend({.arithmetic = arithmetic, .multiprocessors = multiprocessors});
      Batch stale = b;
      for (int64_t i = 101 * b.row_stride(); i < b.lane_stride(); ++i)
        stale.k[static_cast<size_t>(i)] = stale.v[static_cast<size_t>(i)] = 0x7e00;  // NaN
      expect_same_bits(stale.attend({.arithmetic = arithmetic, .multiprocessors = multiprocessors}), before);
    }
}

TEST_P(AttentionShape, ALaneThatIsNotFiniteTouchesNoOther) {
  const Batch sound(GetParam(), {{0, 70}, {0, 71}, {1, 200}, {1, 201}, {2, 30}}, 11);
  Batch damaged = sound;
  for (int64_t i = 0; i < sound.lane_stride(); ++i) damaged.v[static_cast<size_t>(i)] = 0x7e00;  // NaN
  const auto others = [&](std::vector<float> out) {
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(2 * sound.row_floats()));
    return out;
  };
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast})
    for (const int multiprocessors : {1, 1000}) {
      const Batch::How how{.arithmetic = arithmetic, .multiprocessors = multiprocessors};
      expect_same_bits(others(damaged.attend(how)), others(sound.attend(how)));
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShape,
                         testing::Values(Shape{16, 2, 128}, Shape{4, 4, 64, 0, true},
                                         Shape{6, 2, 128, 100, true}, Shape{4, 2, 256, 65}, Shape{16, 1, 64},
                                         Shape{20, 1, 64}, Shape{5, 1, 80}, Shape{4, 2, 96, 64, true},
                                         Shape{2, 1, 8}),
                         [](const auto& test) {
                           const Shape& s = test.param;
                           return fmt::format("h{}of{}d{}w{}{}", s.heads, s.kv_heads, s.head_dim, s.window,
                                              s.sinks ? "sinks" : "");
                         });

TEST(Attention, JoinsMoreChunksThanABlockHolds) {
  // 64 * 512 positions are one pass of the joining kernel.
  const Batch b({1, 1, 64, 0, true}, {{0, 64 * 514 + 5}}, 8);
  const auto walked = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  expect_same_bits(b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000}), walked);
}

TEST(Attention, LoadsOfAWindowBeginAtAnOddChunk) {
  const Batch b({2, 1, 64, 100, false}, {{0, 64 * 70 + 5}, {0, 64 * 71 + 5}}, 9);
  const auto walked = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  expect_same_bits(b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000}), walked);
  expect_same_bits(b.attend({}), b.scalar());
}

TEST(Attention, PartialsAreBounded) {
  EXPECT_LE(attend_partial_bytes(4096, 32, 128, 4096), size_t{64} << 20);
  EXPECT_GE(attend_partial_bytes(1, 32, 128, 32768), size_t{32} * 512 * (128 * 4 + 8));
  EXPECT_LE(attend_partial_bytes(4096, 32, 128, 1 << 20), size_t{96} << 20);
}

}  // namespace
}  // namespace weir::cuda
