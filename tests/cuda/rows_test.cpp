// The operations on rows that are no matmul: embed, norm, gate, sum, gather, combine, choose.
#include <fmt/core.h>

#include "cuda/conformance.h"

namespace weir {
namespace {

constexpr int row_counts[] = {1, 2, 5, 16, 17, 64};

class CudaRowOperations : public CudaTest {};
class CudaEmbed : public CudaTest, public testing::WithParamInterface<Type> {};

TEST_P(CudaEmbed, HasTheCpusBits) {
  const Type type = GetParam();
  const int elements = type_info(type).block_elements;
  for (int64_t hidden : {elements == 1 ? int64_t{33} : int64_t{elements}, int64_t{768}, int64_t{2304}})
    for (int rows : {1, 3, 17}) {
      const RandomMatrix table(type, hidden, 50, 8);
      std::vector<int32_t> tokens(static_cast<size_t>(rows));
      for (size_t r = 0; r < tokens.size(); ++r) tokens[r] = static_cast<int32_t>(r * 49 % 50);
      expect_cpu_bits(
          fmt::format("{} of {}, {} rows", hidden, type_info(type).name, rows), [&](Device& device) {
            Bench bench(device);
            EmbedArgs args;
            args.table = bench.put(table), args.rows.count = rows, args.rows.token = bench.put(tokens);
            args.out = bench.poisoned(static_cast<size_t>(rows * hidden));
            device.embed(args);
            return bench.get(args.out, static_cast<size_t>(rows * hidden));
          });
    }
}
INSTANTIATE_TEST_SUITE_P(All, CudaEmbed, testing::ValuesIn(computable_formats()), format_name);

TEST_F(CudaRowOperations, NormsHaveTheCpusBits) {
  for (int64_t n : {1, 31, 64, 100, 512, 513, 2048, 2304, 5000})
    for (int rows : {1, 3, 17}) {
      Floats x = random_floats(static_cast<size_t>(rows * n), 4),
             weight = random_floats(static_cast<size_t>(n), 6);
      if (rows == 3) {
        for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = 0, x[static_cast<size_t>(n + i)] *= 1e30f;
        x.back() = kNaN;
      }
      for (bool weighted : {false, true})
        for (bool in_place : {false, true})
          expect_cpu_bits(
              fmt::format("{} x {}{}{}", rows, n, weighted ? ", weight" : "", in_place ? ", in place" : ""),
              [&](Device& device) {
                Bench bench(device);
                float* at = bench.put(x);
                float* out = in_place ? at : bench.poisoned(x.size());
                device.rms_norm({at, weighted ? bench.put(weight) : nullptr, out, rows, n, 1e-5f});
                return bench.get(out, x.size());
              });
    }
}

TEST_F(CudaRowOperations, GatesAndSumsHaveTheCpusBits) {
  for (int rows : row_counts)
    for (int64_t n : {1, 96, 769}) {
      const auto size = static_cast<size_t>(rows * n);
      Floats gate = random_floats(size, 1), up = random_floats(size, 2);
      for (size_t i = 0; i < size; ++i) gate[i] *= 120;
      gate[size / 2] = kInfinity, gate[size - 1] = kNaN, up[size / 3] = -kInfinity;
      for (bool in_place : {false, true})
        expect_cpu_bits(fmt::format("gated {} x {}", rows, n), [&](Device& device) {
          Bench bench(device);
          GatedArgs args;
          float* at = bench.put(gate);
          args.gate = at, args.up = bench.put(up), args.rows = rows, args.n = n;
          args.out = in_place ? at : bench.poisoned(size);
          device.gated(args);
          return bench.get(args.out, size);
        });
      expect_cpu_bits(fmt::format("add {} x {}", rows, n), [&](Device& device) {
        Bench bench(device);
        float* h = bench.put(gate);
        device.add(h, bench.put(up), rows * n);
        return bench.get(h, size);
      });
    }
}

TEST_F(CudaRowOperations, GathersRows) {
  for (int count : {1, 2, 9, 40})
    for (int64_t n : {1, 33, 256, 2048}) {
      const Floats x = random_floats(static_cast<size_t>(41 * n), 1);
      std::vector<int32_t> index;
      for (int i = 0; i < count; ++i) index.push_back(i * 17 % 41);
      expect_cpu_bits(fmt::format("{} x {}", count, n), [&](Device& device) {
        Bench bench(device);
        float* out = bench.poisoned(static_cast<size_t>(count * n));
        device.gather_rows(bench.put(x), bench.put(index), count, n, out);
        return bench.get(out, static_cast<size_t>(count * n));
      });
    }
}

TEST_F(CudaRowOperations, CombinesPartsInOrder) {
  for (int rows : row_counts)
    for (int top_k : {1, 2, 8})
      for (int64_t hidden : {33, 256, 2048}) {
        if (rows > 5 && hidden > 256) continue;
        const Floats parts = random_floats(static_cast<size_t>(rows * top_k * hidden), 1);
        const Floats weights = random_floats(static_cast<size_t>(rows * top_k), 2);
        const Floats h = random_floats(static_cast<size_t>(rows * hidden), 3);
        expect_cpu_bits(fmt::format("{} rows, top {}, {}", rows, top_k, hidden), [&](Device& device) {
          Bench bench(device);
          float* at = bench.put(h);
          device.combine({bench.put(parts), bench.put(weights), at, rows, top_k, hidden});
          return bench.get(at, h.size());
        });
      }
}

/// Logits with ties, NaN and infinities in rows of their own.
Floats troubled_logits(int rows, int64_t n) {
  Floats logits = random_floats(static_cast<size_t>(rows * n), 12);
  for (int r = 0; r < rows; ++r) {
    float* row = logits.data() + r * n;
    switch (r % 9) {
      case 1:  // the largest twice: the lower id
        row[n / 2] = row[n - 1] = 7;
        break;
      case 2:
        row[n / 3] = kNaN;
        break;
      case 3:
        row[n - 1] = kInfinity, row[n / 2] = kInfinity;
        break;
      case 4:
        std::fill_n(row, n, -kInfinity);
        break;
      case 5:
        row[0] = 9;  // banned below
        break;
      case 6:
        std::fill_n(row, n, kNaN);
        break;
      case 7:
        std::fill_n(row, n, -0.0f), row[n / 2] = 0.0f;
        break;
      case 8:
        row[0] = kNaN, row[n - 1] = -kInfinity;
        break;
      default:
        break;
    }
  }
  return logits;
}

TEST_F(CudaRowOperations, ChoosesAsTheCpuDoes) {
  for (int rows : {1, 9, 16, 20})
    for (int64_t n : {1, 5, 300, 8001, 40000}) {
      if (rows > 9 && n > 8001) continue;
      reserve({.rows = rows});
      const Floats logits = troubled_logits(rows, n);
      for (const std::vector<int32_t>& banned :
           {std::vector<int32_t>{}, {0}, {static_cast<int32_t>(n - 1), 0, static_cast<int32_t>(n / 2)}})
        expect_cpu_bits(fmt::format("{} x {}, {} banned", rows, n, banned.size()), [&](Device& device) {
          Bench bench(device);
          ChooseArgs args;
          args.logits = bench.put(logits), args.rows = rows, args.n = n;
          args.banned = banned.empty() ? nullptr : bench.put(banned);
          args.banned_count = static_cast<int>(banned.size());
          args.choosable = n - static_cast<int64_t>(banned.size()) % n;  // all, or one or three less
          args.choice = bench.put(std::vector<Choice>(static_cast<size_t>(rows), Choice{-7, -7}));
          device.choose(args);
          Floats result;
          for (const Choice& c : bench.get(args.choice, static_cast<size_t>(rows)))
            append(result, std::vector<int32_t>{c.token, c.first_not_finite});
          return result;
        });
    }
}

}  // namespace
}  // namespace weir
