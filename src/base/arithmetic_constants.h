// The lengths that fix the order of additions (docs/arithmetic.md). Changing one changes the bits of every
// result on every device: they are part of the arithmetic, not tuning knobs.
#pragma once

#include <cstdint>

namespace weir {

/// Elements of K whose block products are added in one chain; the chains' results are added in order.
inline constexpr int64_t kSegment = 2048;
/// Elements of a float dot that share one set of partial sums.
inline constexpr int64_t kFloatSegment = 512;
/// Partial sums of a float dot: element i goes to sum i % 32.
inline constexpr int kFloatLanes = 32;

}  // namespace weir
