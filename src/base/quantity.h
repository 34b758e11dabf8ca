// A number with its noun, for lines that a person reads.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace weir {

/// "1 token", "0 tokens", "12 tokens"; with a plural of its own "2 misses".
inline std::string quantity(uint64_t n, const std::string& one, const std::string& many = "") {
  return fmt::format("{} {}", n, n == 1 ? one : many.empty() ? one + "s" : many);
}

/// A size as an option takes it, rounded up, so that what is typed holds at least `bytes`: "24.3MiB",
/// "11.25GiB".
inline std::string typed_bytes(uint64_t bytes) {
  const bool large = bytes >= uint64_t{10} << 30;
  const double unit = large ? 1 << 30 : 1 << 20, steps = large ? 100 : 10;
  return fmt::format("{:.{}f}{}", std::ceil(static_cast<double>(bytes) / unit * steps) / steps, large ? 2 : 1,
                     large ? "GiB" : "MiB");
}

}  // namespace weir
