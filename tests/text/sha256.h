// SHA-256 (FIPS 180-4), to compare long results with goldens that keep only their digest.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

namespace weir {

class Sha256 {
 public:
  static std::string hex(std::string message) {
    const uint64_t bits = message.size() * 8;
    message += '\x80';
    while (message.size() % 64 != 56) message += '\0';
    for (int shift = 56; shift >= 0; shift -= 8) message += static_cast<char>(bits >> shift);
    Sha256 state;
    for (size_t at = 0; at < message.size(); at += 64) state.absorb(message.data() + at);
    std::string digest;
    for (const uint32_t word : state.h_) {
      for (int shift = 28; shift >= 0; shift -= 4) digest += "0123456789abcdef"[word >> shift & 15];
    }
    return digest;
  }

 private:
  // The constants are the first 32 bits of the fractional parts of roots of the first primes; a long double's
  // 64 bits of mantissa hold them exactly.
  template <typename Root>
  static std::array<uint32_t, 64> fractions(Root root) {
    std::array<uint32_t, 64> result{};
    size_t found = 0;
    for (int candidate = 2; found < result.size(); ++candidate) {
      bool prime = true;
      for (int divisor = 2; divisor * divisor <= candidate; ++divisor) prime &= candidate % divisor != 0;
      if (!prime) continue;
      const long double value = root(static_cast<long double>(candidate));
      result[found++] = static_cast<uint32_t>((value - std::floor(value)) * 0x1p32L);
    }
    return result;
  }

  Sha256() {
    const auto initial = fractions([](long double x) { return std::sqrt(x); });
    std::copy_n(initial.begin(), h_.size(), h_.begin());
    k_ = fractions([](long double x) { return std::cbrt(x); });
  }

  void absorb(const char* block) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 64; ++i) {
      if (i < 16) {
        for (size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | static_cast<uint8_t>(block[4 * i + j]);
        continue;
      }
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = h_;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k_[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<uint32_t, 8> sums = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) h_[i] += sums[i];
  }

  std::array<uint32_t, 8> h_{};
  std::array<uint32_t, 64> k_{};
};

}  // namespace weir
