// The CPU device itself: memory, scratch and its plan, the account, and the operations on rows.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "device/cpu/cpu_device.h"
#include "device/cpu/share.h"
#include "device/cpu_cases.h"

namespace weir {
namespace {

uint64_t resident_bytes() {
  unsigned long size = 0, resident = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  const int read = fscanf(f, "%lu %lu", &size, &resident);
  fclose(f);
  return read == 2 ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

TEST(CpuDevice, NamesWhatItRunsOn) {
  EXPECT_EQ(make_cpu_device(1, Isa::scalar)->description(), "cpu: 1 thread, scalar");
  EXPECT_EQ(make_cpu_device(3, Isa::scalar)->description(), "cpu: 3 threads, scalar");
  EXPECT_EQ(make_cpu_device(1)->name(), "cpu");
  const std::string widest = cpu::processor_has_vnni()   ? "avx512"
                             : cpu::processor_has_avx2() ? "avx2"
                                                         : "scalar";
  EXPECT_EQ(make_cpu_device(1)->description(), "cpu: 1 thread, " + widest);
}

TEST(CpuDevice, RefusesThreadCountsOutOfRange) {
  EXPECT_THROW(make_cpu_device(0), Error);
  EXPECT_THROW(make_cpu_device(100'000), Error);
}

TEST(CpuDevice, MemoryIsZeroAlignedAndResidentOnlyWhereTouched) {
  const auto device = make_cpu_device(1);
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{5000}, size_t{9} << 20}) {
    const Buffer buffer = device->allocate(bytes, "test");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
    const auto* data = buffer.as<uint8_t>();
    EXPECT_TRUE(std::all_of(data, data + bytes, [](uint8_t b) { return b == 0; }));
  }
  const uint64_t before = resident_bytes();
  const Buffer large = device->allocate(size_t{1} << 30, "large");
  EXPECT_LT(resident_bytes() - before, uint64_t{16} << 20);
  large.as<uint8_t>()[12345] = 1;
  EXPECT_LT(resident_bytes() - before, uint64_t{16} << 20);
  EXPECT_FALSE(device->allocate(0, "nothing"));
}

TEST(CpuDevice, FreedMemoryLeavesTheProcess) {
  const auto device = make_cpu_device(1);
  const uint64_t before = resident_bytes();
  {
    const Buffer buffer = device->allocate(size_t{64} << 20, "test");
    memset(buffer.data(), 1, buffer.bytes());
    EXPECT_GE(resident_bytes() - before, uint64_t{64} << 20);
  }
  EXPECT_LT(resident_bytes(), before + (uint64_t{8} << 20));
}

TEST(CpuDevice, AnAllocationThatCannotBeSaysWhatAndHowMuch) {
  const auto device = make_cpu_device(1);
  try {
    device->allocate(size_t{1} << 60, "the moon");
    FAIL() << "allocated an exbibyte";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("1152921504606846976 bytes for the moon"));
    EXPECT_EQ(e.kind(), Error::Kind::failure);
  }
}

const ScratchNeeds qwen = {.rows = 512,
                           .max_in = 4096,
                           .top_k = 8,
                           .expert_ff = 768,
                           .hidden = 2048,
                           .experts = 128,
                           .heads = 32,
                           .head_dim = 128};

TEST(CpuDevice, ScratchIsWhatThePlanSays) {
  const auto device = make_cpu_device(2);
  const uint64_t planned = device->scratch_bytes(qwen);
  EXPECT_EQ(cpu::plan_scratch(qwen, 2).bytes, planned);
  const uint64_t row = (4096 + 2048) * sizeof(float);  // what a norm and a sum hold of each row
  EXPECT_LT(planned, (uint64_t{16} << 20) + 512 * row) << "bounded whatever the width of a prefill";
  ScratchNeeds wide = qwen;
  wide.rows = 4096;
  EXPECT_LT(device->scratch_bytes(wide), (uint64_t{64} << 20) + 4096 * row);
}

TEST(CpuDevice, ScratchRegionsDoNotOverlap) {
  const cpu::ScratchLayout l = cpu::plan_scratch(qwen, 2);
  const size_t begins[] = {l.q32,      l.scale32, l.q256,     l.scale256, l.sums256, l.logits,
                           l.normed,   l.added,   l.attend,   l.gate,     l.up,      l.q_ff,
                           l.scale_ff, l.sums_ff, l.pair_row, l.row_list, l.row_seen};
  const size_t rows = 512, in = 4096, pairs = 1024, ff = 768;
  const size_t bytes[] = {
      rows * in,      rows * in / 8, rows * in,       rows * in / 64,           rows * in / 16,
      rows * 128 * 4, rows * in * 4, rows * 2048 * 4, 2 * (256 + 128 + 64) * 4, pairs * ff * 4,
      pairs * ff * 4, pairs * ff,    pairs * ff / 8,  pairs * ff / 16,          pairs * 4,
      rows * 4,       rows};
  for (size_t i = 0; i < std::size(begins); ++i) {
    EXPECT_EQ(begins[i] % 64, 0u) << i;
    EXPECT_LE(begins[i] + bytes[i], i + 1 < std::size(begins) ? begins[i + 1] : l.bytes) << i;
  }
}

TEST(CpuDevice, AMatmulNormsItsInputAndAddsToItsOutputAsTheOperationsApartDo) {
  constexpr int rows = 3;
  constexpr int64_t in = 256, out = 40;
  const auto device = make_cpu_device(2);
  device->reserve({.rows = rows, .max_in = in, .hidden = 2 * out});
  const RandomMatrix quantised(Type::Q4_K, in, out, 1), plain(Type::F32, in, out, 2);
  const Floats x = random_floats(rows * in, 3), norm = random_floats(in, 4), h = random_floats(rows * out, 5);
  Floats normed(rows * in), y[3] = {Floats(rows * out), Floats(rows * out), Floats(rows * out)};
  device->rms_norm({x.data(), norm.data(), normed.data(), rows, in, 1e-6f});
  const MatmulTarget apart[] = {{quantised.matrix(), y[0].data()}, {plain.matrix(), y[1].data()}};
  device->matmul({normed.data(), rows, apart});
  Floats first = h, third = h;
  device->add(first.data(), y[0].data(), rows * out);
  device->add(third.data(), y[1].data(), rows * out);
  Floats fused[] = {h, Floats(rows * out), h};
  const MatmulTarget together[] = {{quantised.matrix(), fused[0].data(), true},
                                   {quantised.matrix(), fused[1].data()},
                                   {plain.matrix(), fused[2].data(), true}};
  device->matmul({x.data(), rows, together, norm.data(), 1e-6f});
  EXPECT_EQ(fused[0], first);
  EXPECT_EQ(fused[1], y[0]);
  EXPECT_EQ(fused[2], third);
}

TEST(CpuDevice, ChoosesTheLargestLogitTheLowerIdOfEqualsAndNoBannedOne) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Floats logits = {1,    3,    3,   2,     // the lower id of two
                         9,    -1,   2,   2,     // 0 is banned
                         -inf, -inf, -5,  -inf,  // what is left where nearly all is gone
                         -inf, -inf, inf, nan};  // not finite from 2 on
  const int32_t banned[] = {0};
  Choice choice[4];
  const auto device = make_cpu_device(2);
  device->choose({logits.data(), 4, 4, banned, 1, choice});
  const int32_t tokens[] = {1, 2, 2};
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(choice[r].token, tokens[r]) << r;
    EXPECT_EQ(choice[r].first_not_finite, -1) << r;
  }
  EXPECT_EQ(choice[3].first_not_finite, 2);
}

TEST(CpuDevice, ChoosesNoIdAboveTheChoosableButReportsOneThatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const Floats logits = {1,    3,    2, 9,    // the largest cannot be chosen
                         -inf, -inf, 5, inf,  // neither can these: the lowest id is left
                         4,    3,    2, 1};
  Choice choice[3];
  make_cpu_device(2)->choose({logits.data(), 3, 4, nullptr, 0, choice, 2});
  EXPECT_EQ(choice[0].token, 1);
  EXPECT_EQ(choice[1].token, 0);
  EXPECT_EQ(choice[1].first_not_finite, 3);
  EXPECT_EQ(choice[2].token, 0);
  EXPECT_EQ(choice[2].first_not_finite, -1);
}

TEST(CpuDevice, ReserveKeepsTheLargestOfAllNeeds) {
  const auto device = make_cpu_device(1);
  device->reserve({.rows = 8, .max_in = 256});
  device->reserve({.rows = 2, .max_in = 512, .heads = 2, .head_dim = 64});
  const RandomMatrix w(Type::Q8_0, 512, 4, 1);
  const Floats x = random_floats(8 * 512, 2);
  Floats y(8 * 4);
  const MatmulTarget target{w.matrix(), y.data()};
  device->matmul({x.data(), 8, {&target, 1}});
  EXPECT_NE(y[31], 0.0f);
}

/// What a decode round and a prefill round call, in a loop: the heap must stand still.
TEST(CpuDevice, NothingAllocatesAfterReserve) {
  const int rows = 16, k = 4;
  const RandomMatrix w(Type::Q4_K, 256, 64, 1), down(Type::Q6_K, 256, 256, 2), gate(Type::Q4_K, 256, 256, 3),
      router(Type::F32, 256, 8, 4);
  const Floats x = random_floats(rows * 256, 5);
  Floats y(rows * 256), parts(rows * k * 256), weights(rows * k);
  std::vector<int32_t> ids(rows * k), pairs(rows * k);
  for (int32_t i = 0; i < rows * k; ++i) pairs[static_cast<size_t>(i)] = i;
  const ExpertWork work{gate.matrix(), gate.matrix(), down.matrix(), pairs};
  const auto device = make_cpu_device(2);
  device->reserve({.rows = rows, .max_in = 256, .top_k = k, .expert_ff = 256, .hidden = 256, .experts = 8});
  const auto round = [&] {
    const MatmulTarget target{w.matrix(), y.data()};
    device->matmul({x.data(), rows, {&target, 1}});
    RouteArgs route;
    route.x = x.data(), route.router = router.matrix(), route.rows = rows, route.top_k = k;
    route.ids = ids.data(), route.weights = weights.data();
    device->route(route);
    device->experts({{&work, 1}, x.data(), k, Activation::swiglu, parts.data()});
    device->combine({parts.data(), weights.data(), y.data(), rows, k, 256});
  };
  round();
  const auto before = mallinfo2();
  for (int i = 0; i < 10; ++i) round();
  const auto after = mallinfo2();
  EXPECT_EQ(after.uordblks, before.uordblks);
  EXPECT_EQ(after.hblkhd, before.hblkhd);
}

TEST(CpuDevice, EmbedDecodesTheTokensRows) {
  for (Type type : {Type::F32, Type::F16, Type::Q8_0, Type::Q4_K, Type::Q6_K}) {
    const RandomMatrix table(type, 256, 10, 1);
    const std::vector<int32_t> token = {9, 0, 4, 4};
    Floats out(4 * 256);
    const auto device = make_cpu_device(2);
    device->embed({table.matrix(), {4, token.data(), nullptr, nullptr}, out.data()});
    const Floats all = table.decoded();
    for (size_t r = 0; r < 4; ++r)
      for (size_t i = 0; i < 256; ++i)
        ASSERT_EQ(out[r * 256 + i], all[static_cast<size_t>(token[r]) * 256 + i]) << type_info(type).name;
  }
}

TEST(CpuDevice, RowOperationsAgreeBetweenDevicesAndRows) {
  const int rows = 13;
  const int64_t n = 1000;
  const Floats x = random_floats(static_cast<size_t>(rows * n), 1), u = random_floats(x.size(), 2);
  const Floats w = random_floats(static_cast<size_t>(n), 3);
  const auto check = [&](auto&& op) {
    const auto run = [&](Device& device, int first, int count) {
      Floats out(x.begin() + first * n, x.begin() + (first + count) * n);
      op(device, out.data(), u.data() + first * n, count);
      return out;
    };
    const Floats got = on_all_devices({}, [&](Device& device) { return run(device, 0, rows); });
    expect_row_invariant({}, rows, run);
    return got;
  };
  const Floats normed = check([&](Device& device, float* h, const float*, int count) {
    device.rms_norm({h, w.data(), h, count, n, 1e-6f});
  });
  double sum = 0;
  for (size_t i = 0; i < 1000; ++i) sum += double{x[i]} * x[i];
  EXPECT_NEAR(normed[7], x[7] / std::sqrt(sum / 1000 + 1e-6) * w[7], 1e-6);
  const Floats gated = check([&](Device& device, float* h, const float* up, int count) {
    device.gated({h, up, h, count, n, Activation::swiglu});
  });
  EXPECT_NEAR(gated[5], x[5] / (1 + std::exp(-double{x[5]})) * u[5], 1e-6);
  const Floats added =
      check([&](Device& device, float* h, const float* y, int count) { device.add(h, y, count * n); });
  EXPECT_EQ(added[12'345], x[12'345] + u[12'345]);
}

TEST(CpuDevice, GatherTakesRowsByIndex) {
  const Floats x = random_floats(10 * 33, 1);
  const std::vector<int32_t> index = {9, 2, 2, 0, 5};
  Floats out(5 * 33);
  const auto device = make_cpu_device(2);
  device->gather_rows(x.data(), index.data(), 5, 33, out.data());
  for (size_t r = 0; r < 5; ++r)
    for (size_t i = 0; i < 33; ++i) EXPECT_EQ(out[r * 33 + i], x[static_cast<size_t>(index[r]) * 33 + i]);
}

TEST(CpuDevice, CopiesGoThere) {
  const auto device = make_cpu_device(1);
  const Buffer buffer = device->allocate(400, "test");
  const Floats x = random_floats(100, 1);
  Floats back(100);
  device->upload(buffer.data(), x.data(), 400);
  device->download(back.data(), buffer.data(), 400);
  EXPECT_EQ(back, x);
}

// --- the split of unequal work

struct Share {
  int64_t part, begin, end;
};
std::vector<Share> share(const std::vector<cpu::SharePart>& parts, int member, int members) {
  std::vector<Share> got;
  cpu::for_share(
      std::ssize(parts), [&](int64_t i) { return parts[static_cast<size_t>(i)]; }, member, members,
      [&](int64_t part, int64_t begin, int64_t end) {
        got.push_back({part, begin, end});
      });
  return got;
}

TEST(CpuShare, EveryUnitGoesToExactlyOneMember) {
  const std::vector<std::vector<cpu::SharePart>> cases = {
      {}, {{0, 5}}, {{1, 1}}, {{10, 3}}, {{4, 100}, {0, 1}, {300, 1}, {7, 13}}, {{1, 1000}, {1000, 1}}};
  for (const auto& parts : cases)
    for (int members : {1, 2, 3, 8, 64}) {
      std::vector<std::vector<int>> visits;
      for (const auto& part : parts) visits.emplace_back(static_cast<size_t>(part.units));
      for (int m = 0; m < members; ++m)
        for (const Share& s : share(parts, m, members))
          for (int64_t u = s.begin; u < s.end; ++u)
            ++visits[static_cast<size_t>(s.part)][static_cast<size_t>(u)];
      for (const auto& part : visits)
        for (int v : part) EXPECT_EQ(v, 1) << members;
    }
}

TEST(CpuShare, MembersCarryEqualCostUpToOneUnit) {
  const std::vector<cpu::SharePart> parts = {{40, 10}, {100, 1}, {3, 50}, {17, 9}};
  const int64_t total = 400 + 100 + 150 + 153;
  for (int members : {2, 3, 5})
    for (int m = 0; m < members; ++m) {
      int64_t cost = 0;
      for (const Share& s : share(parts, m, members))
        cost += (s.end - s.begin) * parts[static_cast<size_t>(s.part)].cost;
      EXPECT_NEAR(static_cast<double>(cost), static_cast<double>(total) / members, 50.0)
          << m << "/" << members;
    }
}

}  // namespace
}  // namespace weir
